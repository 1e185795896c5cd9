"""Calls to the outside, in the order in which they are made -> what goes wrong at one of them.

Every call that a process makes of broker, catalog or store goes through `Interruptions.call`. A step of a story names
calls by their number within the step; what is to happen there happens before, behind, or in the place of the call.
Some that only ask are numbered apart: -1, -2, and so on. Recorded histories count the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal, TypeVar

import attrs
from opensearchpy.exceptions import OpenSearchException
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from connector.errors import RetriableError

R = TypeVar("R")

Fault = Literal["crash", "crash-after", "away", "lost", "late", "twice"]
"""What happens at a call.

    crash        the process ends before the call is made
    crash-after  the process ends when the call is done, before it hears of it
    away         the other side does not answer, and nothing is done
    lost         it is done, and the answer gets lost
    late         the answer gets lost, and it is done later
    twice        it is done, and sent again by a proxy, whose answer, a refusal, is what comes
"""
FAULTS: tuple[Fault, ...] = ("crash", "crash-after", "away", "lost", "late", "twice")

_BEYOND, _FAR = (10, 25, 60), 0.2
"""How many more calls long steps make than most, and how often something happens at one of these."""
_APART_CALLS, _APART = 4, 0.1
"""The same of calls that are numbered apart."""

OUTAGE, OUTAGE_CALLS = "outage", 24
"""Nobody answers this call and so many behind it: whoever tries again gives up."""


class Crash(BaseException):
    """The process is killed: no handler of its own sees it."""


class JavaError(Py4JJavaError):
    """What Py4J raises for a Java exception of this simple name; it is that exception, too."""

    _target_id = ""

    def __init__(self, name: str, message: str = "") -> None:
        Exception.__init__(self, name)
        self.java_exception = self
        self._name, self._message = name, message

    def __str__(self) -> str:
        return f"{self._name}: {self._message}"

    def getClass(self) -> JavaError:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> None:  # noqa: N802 - Java's name
        return None


class CapturedJavaError(CapturedException):
    """What PySpark raises in the place of some of Java's exceptions, `IllegalArgumentException` among them."""

    def __init__(self, name: str, message: str) -> None:
        Exception.__init__(self, name)
        self._origin = JavaError(name, message)

    def __str__(self) -> str:
        return str(self._origin)


Away = Callable[[], Exception]


def broker_away() -> Exception:
    return RetriableError("the broker does not answer")


def catalog_away() -> Exception:
    return JavaError("ServiceFailureException", "the catalog does not answer")


def commit_unanswered() -> Exception:
    return JavaError("CommitStateUnknownException", "no answer")


def commit_refused() -> Exception:
    return JavaError("CommitFailedException", "the branch has moved")


def draw_call(rng: Random, far: Random, most: int) -> int:
    """A call of a step: mostly one of those that most steps make, now and then one that only long steps come to, or one
    that is numbered apart.
    """
    near, kind = rng.randrange(most), far.random()
    if kind < _APART:
        return -far.randint(1, _APART_CALLS)
    return far.randrange(most, most + far.choice(_BEYOND)) if kind < _APART + _FAR else near


@attrs.define(eq=False)
class Interruptions:
    """What is to happen during the step at hand: faults, or steps of others, by the number of the call.

    `trace` names the calls of the step. `late` are commits that land once somebody lets them.
    """

    plan: dict[int, Any] = attrs.field(factory=dict)
    act: Callable[[Any], None] = lambda _: None
    trace: list[str] = attrs.field(factory=list)
    late: list[Callable[[], None]] = attrs.field(factory=list)
    happened: list[str] = attrs.field(factory=list)
    dead: bool = False
    unanswered: int = 0
    asked: int = 0

    def begin(self, plan: Mapping[int, Any]) -> None:
        """Begin a step."""
        self.plan, self.trace, self.dead, self.unanswered, self.asked = dict(plan), [], False, 0, 0

    def call(self, what: str, do: Callable[[], R], away: Away, unanswered: Away | None = None) -> R:
        """Make a call. `unanswered` is raised for those that change something, where nobody says what came of it."""
        self.trace.append(what)
        return self._call(len(self.trace) - 1, what, do, away, unanswered)

    def ask(self, what: str, do: Callable[[], R], away: Away) -> R:
        """Make a call that changes nothing, and is numbered apart."""
        self.asked += 1
        return self._call(-self.asked, what, do, away, None)

    def send(self, what: str, do: Callable[[], R]) -> R:
        """Have the broker take something. What comes twice is an answer that does not come; nothing comes late: whoever
        sends it waits for it.
        """
        late = len(self.late)
        try:
            return self.call(what, do, broker_away, broker_away)
        except JavaError as error:
            raise broker_away() from error
        finally:
            del self.late[late:]

    def _call(self, number: int, what: str, do: Callable[[], R], away: Away, unanswered: Away | None) -> R:
        if self.dead:
            raise Crash(what)
        planned = self.plan.pop(number, None)
        if planned == OUTAGE:
            self.happened.append(f"{OUTAGE} from {what} on")
            planned, self.unanswered = None, OUTAGE_CALLS
        if self.unanswered:
            self.unanswered -= number >= 0
            raise away()
        if planned is None:
            return do()
        if planned not in FAULTS:
            # Others act meanwhile; calls of theirs have numbers of their own.
            plan, trace, asked, self.plan, self.trace = self.plan, self.trace, self.asked, {}, []
            try:
                self.act(planned)
            finally:
                self.plan, self.trace, self.asked, self.dead = plan, trace, asked, False
            return do()
        self.happened.append(f"{planned} at {what}")
        return self._fail(planned, what, do, away, unanswered)

    def _fail(self, fault: Fault, what: str, do: Callable[[], R], away: Away, unanswered: Away | None) -> R:
        if fault == "crash":
            self.dead = True
            raise Crash(what)
        if fault == "crash-after":
            do()
            self.dead = True
            raise Crash(what)
        if fault == "away" or unanswered is None:
            raise away()
        if fault == "late":
            self.late.append(do)  # type: ignore[arg-type]
            raise unanswered()
        do()
        raise commit_refused() if fault == "twice" else unanswered()

    def land(self) -> None:
        """Let what is late land, where it still can."""
        waiting, self.late = self.late, []
        for do in waiting:
            try:
                do()
            except (Py4JJavaError, CapturedException, OpenSearchException):
                continue
