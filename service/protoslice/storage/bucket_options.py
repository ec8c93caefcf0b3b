"""Options of buckets: obstore's names for each scheme, and names for any connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from protoslice.errors import InvalidInput

_CONNECTION: Final = (
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_keep_alive_interval "
    "http2_keep_alive_timeout http2_keep_alive_while_idle http2_only pool_idle_timeout pool_max_idle_per_host "
    "proxy_ca_certificate proxy_excludes proxy_url randomize_addresses read_timeout root_certificate timeout "
    "user_agent"
)
_S3: Final = (
    "access_key_id bucket checksum_algorithm conditional_put container_authorization_token_file "
    "container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region "
    "disable_bulk_delete disable_tagging endpoint endpoint_url imdsv1_fallback metadata_endpoint region "
    "request_payer role_arn role_session_name s3_express secret_access_key server_side_encryption session_token "
    "skip_signature sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id token unsigned_payload "
    "virtual_hosted_style_request web_identity_token_file"
)
_GS: Final = (
    "application_credentials base_url bearer_token bucket service_account service_account_key service_account_path "
    "skip_signature"
)
_AZ: Final = (
    "account_key account_name authority_host client_id client_secret container_name credential_type disable_tagging "
    "encryption_key endpoint fabric_cluster_identifier fabric_session_token fabric_token_service_url "
    "fabric_workload_host federated_token_file msi_endpoint msi_resource_id object_id sas_key skip_signature tenant_id "
    "token use_azure_cli use_emulator use_fabric_endpoint"
)
CONNECTION: Final = frozenset(_CONNECTION.split())
"""Options of the connections to any store."""
STORES: Final = {name: frozenset(text.split()) for name, text in {"s3": _S3, "gs": _GS, "az": _AZ}.items()}
"""Options of the stores of a scheme."""

_UNSIGNED: Final = "unsigned_payload"
_UNSIGNED_VARIABLE: Final = "AWS_UNSIGNED_PAYLOAD"
_PREFIXES: Final = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_storage_", "azure_")}


def sort_options(scheme: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options into those of the store and those of its connections.

    Names may also have the form of environment variables, such as `AWS_REGION`. `InvalidInput` for an option that is
    unknown or given twice.
    """
    store: dict[str, str] = {}
    connection: dict[str, str] = {}
    # An option of one kind given as the other makes obstore panic.
    for given, value in options.items():
        name = _plain(scheme, given)
        place = store if name in STORES[scheme] else connection
        if place is connection and name not in CONNECTION:
            known = ", ".join(sorted(STORES[scheme] | CONNECTION))
            raise InvalidInput(f"Unknown option {given!r} of {scheme} storage; use one of {known}")
        if name in place:
            raise InvalidInput(f"The storage option {name!r} is given twice")
        place[name] = value
    return store, connection


def spared(scheme: str, store: Mapping[str, str], *, encrypted: bool) -> dict[str, str]:
    """Options of a store by which bodies that TLS guards are not digested to sign their requests.

    An option or a variable of the operator's decides instead. The digest is a second one of all that is uploaded.
    """
    told = _UNSIGNED in store or _UNSIGNED_VARIABLE in os.environ
    return dict(store) if scheme != "s3" or told or not encrypted else {**store, _UNSIGNED: "true"}


def _plain(scheme: str, name: str) -> str:
    plain = name.lower()
    for prefix in _PREFIXES[scheme]:
        if plain.startswith(prefix):
            return plain.removeprefix(prefix)
    return plain
