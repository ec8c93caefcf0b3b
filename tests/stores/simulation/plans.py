"""Plans of histories, drawn from their seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.stores.simulation.artifacts import REPOSITORIES, DropArtifact, PushArtifact, manifest_of
from tests.stores.simulation.clients import TAGS, Action
from tests.stores.simulation.committing import Push
from tests.stores.simulation.contents import CONTENTS, FAMILY, Content
from tests.stores.simulation.drafting import Seal
from tests.stores.simulation.faults import Fate, Place, Weather
from tests.stores.simulation.quieting import QUIET_SECONDS, Leave, LookForQuiet
from tests.stores.simulation.reading import Collect, Find, Read
from tests.stores.simulation.removing import Damage, Remove, Restore
from tests.stores.simulation.sending import Commit, Recipe, Send
from tests.stores.simulation.tagging import DropTag, Look, SetTag
from tests.stores.simulation.uploading import Resumable
from tests.stores.simulation.xorbs import PushXorbs

from protoslice.artifacts import Digest

LIFETIME_SECONDS = 6000.0
GRACES = (0.0, 5.0, 100.0, 700.0, 2000.0)
"""Graces in seconds, shorter and longer than writers' signs of life: acknowledged stores need neither."""


@dataclass(frozen=True, slots=True)
class Script:
    """The numbered actions of a client."""

    name: str
    actions: tuple[tuple[int, Action], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a history depends on."""

    seed: int
    replicas: int
    scripts: tuple[Script, ...]
    weather: Weather
    fates: Mapping[Place, Fate] | None = None
    """Fates of calls, by place; None when they are drawn from the weather."""
    part_bytes: int = 64
    page: int = 1000
    conditional_delete: bool = True
    skew: float = 0.0
    lifetime: float = LIFETIME_SECONDS
    grace: float = 700.0


def drawn(seed: int, profile: str = "all") -> Plan:
    """The plan of a seed, with clients of a profile."""
    random = Random(seed)
    grace = random.choice(GRACES)
    contents = random.sample(FAMILY if profile == "sharing" else CONTENTS, random.choice((1, 2, 3)))
    # Few kinds in one history: those that are there meet the more often.
    known = PROFILES[profile]
    kinds = random.choices(random.sample(known, random.randint(1, len(known))), k=random.choice((1, 2, 3, 4)))
    scripts = []
    for number, kind in enumerate(kinds):
        actions = kind(random, contents, grace)
        scripts.append(Script(f"c{number}", tuple(enumerate(actions))))
    return Plan(
        seed=seed,
        replicas=random.choice((2, 2, 3)),
        scripts=tuple(scripts),
        weather=Weather.drawn(random),
        part_bytes=random.choice((32, 64, 1000)),
        page=random.choice((4, 1000)),
        conditional_delete=random.random() < 0.5,
        skew=random.choice((0.0, 20.0)),
        grace=grace,
    )


def _wait(random: Random) -> float:
    """Mostly at once, sometimes after the grace."""
    return random.choice((0.0, random.random(), 10 * random.random(), 3000 * random.random()))


def _senders(random: Random, contents: list[Content], grace: float) -> list[Action]:
    def send() -> Action:
        tags = tuple(random.sample(TAGS, random.choice((0, 0, 1, 2))))
        content, told = random.choice(contents), random.random() < 0.5
        return Send(wait=_wait(random), content=content, tags=tags, told=told)

    return [send() for _ in range(random.randint(1, 4))]


def _teller(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Sends equal content, whose digest is mostly told, so slowly that collectors come between."""

    def send() -> Action:
        pause = random.choice((0.0, 0.0, 100.0, 3000.0)) * random.random()
        content = _single(random, contents)
        return Send(wait=_wait(random), patience=5000.0, content=content, told=random.random() < 0.7, pause=pause)

    return [send() for _ in range(random.randint(1, 4))]


def _reteller(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Sends one content again and again with tags, tells its digest, and removes it in between."""
    content = _single(random, contents)

    def act() -> Action:
        wait, tag = _wait(random), random.choice(TAGS)
        match random.randrange(6):
            case 0:
                return Remove(wait=wait, content=content)
            case 1:
                return Restore(wait=wait, content=content)
            case 2:
                pause = 3000.0 * random.random()
                return Send(wait=wait, patience=5000.0, content=content, tags=(tag,), pause=pause)
            case 3:
                return SetTag(wait=wait, tag=tag, content=content)
        return Send(wait=wait, content=content, tags=(tag,) if random.random() < 0.5 else (), told=True)

    return [Send(content=content, tags=(random.choice(TAGS),)), *(act() for _ in range(random.randint(2, 6)))]


def _single(random: Random, contents: list[Content]) -> Content:
    """A content of one file, one of `contents` if there is one."""
    return random.choice([each for each in contents if len(each.files) == 1] or CONTENTS[:4])


def _uploader(random: Random, contents: list[Content], grace: float) -> list[Action]:
    def upload() -> Action:
        content = _single(random, contents)
        return Resumable(
            wait=_wait(random),
            patience=random.choice((5.0, 60.0, 1000.0)),
            content=content,
            step=-(-len(content.data) // random.choice((1, 3, 10, 16, 17, 31))),
            streams=random.choice((1, 1, 1, 2, 3)),
            told_length=random.random() < 0.7,
            checksums=random.random() < 0.3,
            look=random.choice((0.0, 0.2, 0.7)),
            watched=random.choice((0.0, 0.0, 0.3, 2.0)),
            lifetime=LIFETIME_SECONDS,
            ended=random.random() < 0.1,
        )

    return [upload() for _ in range(random.choice((1, 1, 2)))]


def _tagger(random: Random, contents: list[Content], grace: float) -> list[Action]:
    def change() -> Action:
        tag, wait = random.choice(TAGS), _wait(random)
        match random.randrange(6):
            case 0:
                return DropTag(wait=wait, tag=tag, condition=random.choice(("any", "match")))
            case 1:
                return Look(wait=wait, tag=tag)
        condition = random.choice(("any", "new", "match"))
        return SetTag(wait=wait, tag=tag, content=random.choice(contents), condition=condition)

    return [Send(content=random.choice(contents)), *(change() for _ in range(random.randint(2, 5)))]


def _remover(random: Random, contents: list[Content], grace: float) -> list[Action]:
    def remove() -> Action:
        kind = random.choice((Remove, Remove, Restore))
        return kind(wait=_wait(random), content=random.choice(contents))

    return [remove() for _ in range(random.randint(1, 4))]


def _stranger(random: Random, contents: list[Content], grace: float) -> list[Action]:
    content = random.choice(contents)
    return [Damage(wait=_wait(random), content=content), Send(wait=_wait(random), content=content)]


def _reader(random: Random, contents: list[Content], grace: float) -> list[Action]:
    return [Read(wait=_wait(random), content=random.choice(contents)) for _ in range(random.randint(1, 4))]


def _finder(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Sends a store whose files others have too, and looks for these."""
    source = random.choice([each for each in contents if each in FAMILY] or FAMILY)
    finds: list[Action] = [
        Find(wait=_wait(random), content=random.choice((source, *contents)), computes=random.random() < 0.7)
        for _ in range(random.randint(1, 4))
    ]
    return [Send(content=source), *finds]


def _copier(random: Random, contents: list[Content], grace: float) -> list[Action]:
    source = random.choice([each for each in contents if each in FAMILY] or FAMILY)
    copies = [_copy(random, source) for _ in range(random.choice((1, 1, 2)))]
    if random.random() < 0.5:
        copies.insert(1, Remove(wait=_wait(random), content=source))
    return [Send(content=source), *copies]


def _copy(random: Random, source: Content) -> Action:
    """A store that shares files of the source, mostly at once."""
    content, way = random.choice([each for each in FAMILY if each is not source]), random.choice((0, 1, 1, 2))
    if way == 0:
        return Recipe(wait=_wait(random), content=content, source=source)
    pause = random.choice((0.0, 100.0, 3000.0)) * random.random()
    return Commit(wait=_wait(random), patience=5000.0, content=content, source=source, digests=way == 2, pause=pause)


def _drafter(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Writes folders of its own, whose files change, and folders that others write with the same files."""

    def seal() -> Action:
        if random.random() < 0.5:
            content = random.choice(contents)
            return Seal(wait=_wait(random), folder=f"shared/{content.name}", contents=(content,))
        versions = tuple(random.choice(CONTENTS) for _ in range(random.choice((2, 2, 3))))
        return Seal(wait=_wait(random), folder=f"own/{random.getrandbits(64):x}", contents=versions)

    return [seal() for _ in range(random.choice((1, 2, 3)))]


def _leaver(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Writes a folder of its own, slowly or at once, for replicas to find it quiet."""
    versions = tuple(random.choice(CONTENTS) for _ in range(random.choice((1, 2, 3))))
    pause = random.choice((0.0, 10.0, QUIET_SECONDS, 3 * QUIET_SECONDS)) * random.random()
    folder = f"{random.getrandbits(64):x}/artifacts"
    return [Leave(wait=_wait(random), folder=folder, contents=versions, pause=pause, patience=2000.0)]


def _looker(random: Random, contents: list[Content], grace: float) -> list[Action]:
    every = QUIET_SECONDS * random.random()
    return [LookForQuiet(wait=every, times=random.choice((5, 20, 40)), every=every, patience=2000.0)]


def _pusher(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Commits to the branch that all others commit to, mostly at once."""

    def push() -> Action:
        if random.random() < 0.4:
            pause = random.choice((0.0, 0.0, 100.0, LIFETIME_SECONDS / 2)) * random.random()
            content = random.choice(CONTENTS)
            return PushXorbs(wait=_wait(random), content=content, pause=pause, lifetime=LIFETIME_SECONDS)
        return Push(wait=random.choice((0.0, random.random(), _wait(random))), content=random.choice(CONTENTS))

    return [push() for _ in range(random.randint(1, 4))]


def _registrar(random: Random, contents: list[Content], grace: float) -> list[Action]:
    """Pushes artifacts to repositories that others push to, and deletes tags and manifests."""

    def push() -> Action:
        repository, tag = random.choice(REPOSITORIES), random.choice(TAGS)
        wait = random.choice((0.0, random.random() / 5, _wait(random)))
        if random.random() < 0.4:
            ref = random.choice((tag, Digest.of(manifest_of(random.choice(contents))).text))
            return DropArtifact(wait=wait, repository=repository, ref=ref)
        return PushArtifact(
            wait=wait,
            repository=repository,
            content=random.choice(contents),
            tag=tag,
            looks=random.random() < 0.5,
            mounts=random.random() < 0.4,
            streams=random.choice((0, 0, 1, 3)),
            pause=random.choice((0.0, 0.0, 100.0, 2 * LIFETIME_SECONDS)) * random.random(),
            lifetime=LIFETIME_SECONDS,
        )

    return [push() for _ in range(random.randint(2, 6))]


def _collector(random: Random, contents: list[Content], grace: float) -> list[Action]:
    times, every = random.choice(((3, 1000.0), (6, 600.0), (20, 50.0)))
    return [Collect(wait=_wait(random), grace=grace, times=times, every=every * (0.5 + random.random()))]


PROFILES = {
    "all": (_senders, _uploader, _tagger, _remover, _reader, _copier, _collector, _stranger),
    "uploads": (_uploader,),
    "tags": (_tagger, _remover, _senders),
    "sharing": (_copier, _copier, _collector, _remover, _senders),
    "told": (_teller, _teller, _teller, _collector, _remover),
    "retold": (_reteller, _reteller, _reteller, _reteller, _collector, _collector),
    "drafts": (_drafter, _drafter, _drafter, _collector, _remover),
    "quiet": (_leaver, _leaver, _looker, _looker, _collector),
    "repositories": (_pusher, _pusher, _pusher, _collector),
    "artifacts": (_registrar, _registrar, _registrar, _collector),
    "pieces": (_finder, _finder, _finder, _collector, _remover, _copier),
    "garbage": (_collector, _senders, _uploader, _copier),
}
"""Kinds of clients that a history may be of."""
