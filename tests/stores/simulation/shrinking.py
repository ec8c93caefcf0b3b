"""The shortest history that still fails: whatever can be left out of a plan is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.stores.simulation.clients import Action
from tests.stores.simulation.plans import Plan, Script

Fails = Callable[[Plan], bool]


def shrunk(plan: Plan, fails: Fails, *, most: int = 600) -> Plan:
    """A plan that fails as `plan` does with as little in it as could be found in `most` attempts."""
    tries = iter(range(most))

    def still(candidate: Plan) -> bool:
        return next(tries, None) is not None and fails(candidate)

    before = None
    while plan != before:
        before = plan
        for smaller in (_fewer_clients, _fewer_troubles, _fewer_actions, _simpler_actions, _simpler_storage):
            plan = smaller(plan, still)
    return plan


def _fewer_clients(plan: Plan, fails: Fails) -> Plan:
    for script in plan.scripts:
        plan = _first(plan, [_with(plan, script, ())], fails)
    return plan


def _fewer_troubles(plan: Plan, fails: Fails) -> Plan:
    """Half of them left out, a quarter, an eighth, each."""
    size = len(plan.fates or ())
    while size:
        at = 0
        while at < len(plan.fates or ()):
            fates = list((plan.fates or {}).items())
            fewer = replace(plan, fates=dict(fates[:at] + fates[at + size :]))
            if fails(fewer):
                plan = fewer
            else:
                at += size
        size //= 2
    return plan


def _fewer_actions(plan: Plan, fails: Fails) -> Plan:
    for script in plan.scripts:
        for each in script.actions:
            now = _named(plan, script.name)
            if now is not None:
                plan = _first(plan, [_with(plan, now, tuple(other for other in now.actions if other != each))], fails)
    return plan


def _simpler_actions(plan: Plan, fails: Fails) -> Plan:
    for script in plan.scripts:
        for place in range(len(script.actions)):
            plan = _first(plan, _simpler(plan, script.name, place), fails)
    return plan


def _simpler(plan: Plan, name: str, place: int) -> Iterator[Plan]:
    script = _named(plan, name)
    if script is not None and place < len(script.actions):
        number, action = script.actions[place]
        for simpler in action.simpler():
            yield _with(plan, script, (*script.actions[:place], (number, simpler), *script.actions[place + 1 :]))


def _simpler_storage(plan: Plan, fails: Fails) -> Plan:
    return _first(plan, [replace(plan, page=1000), replace(plan, replicas=plan.replicas - 1 or 1)], fails)


def _first(plan: Plan, candidates: Iterator[Plan] | list[Plan], fails: Fails) -> Plan:
    """The first of the candidates that fails, else the plan."""
    return next((candidate for candidate in candidates if candidate != plan and fails(candidate)), plan)


def _named(plan: Plan, name: str) -> Script | None:
    return next((script for script in plan.scripts if script.name == name), None)


def _with(plan: Plan, script: Script, actions: tuple[tuple[int, Action], ...]) -> Plan:
    """The plan with other actions of a client, or without it where none are left."""
    changed = (Script(script.name, actions),) if actions else ()
    scripts = [each for old in plan.scripts for each in (changed if old.name == script.name else (old,))]
    return replace(plan, scripts=tuple(scripts))
