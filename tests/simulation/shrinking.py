"""A story that ends wrong -> a shorter one that ends wrong in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import attrs

from tests.simulation.history import History, Wrong
from tests.simulation.steps import Batch, Maintain, SourceStep, Step, Story, without

MAX_TRIES = 1500
_DETAILS = re.compile(r"[\d\-]+|not there|n=|\s+")


@attrs.frozen
class Failure:
    """What was wrong at the end of a story, and what had happened till then."""

    story: Story
    reason: str
    events: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The reason without its numbers."""
        return _DETAILS.sub("", self.reason)

    def __str__(self) -> str:
        lines = [
            f"{field.name}={getattr(self.story.world, field.name)}" for field in attrs.fields(type(self.story.world))
        ]
        return "\n".join(["world: " + ", ".join(lines), *self.events, f"WRONG: {self.reason}"])


def tell(story: Story, folder: str) -> Failure | None:
    """Go through a story; None where every invariant holds."""
    history = History(story, folder)
    try:
        history.run()
    except Wrong as wrong:
        return Failure(story, str(wrong), tuple(history.events))
    return None


def shrink(failure: Failure, folder: str, tell: Callable[[Story, str], Failure | None] = tell) -> Failure:
    """Leave out, and make simple, what the failure does not need."""
    tries = 0
    again = True
    while again and tries < MAX_TRIES:
        again = False
        for story in _simpler(failure.story):
            tries += 1
            found = tell(story, folder)
            if found is not None and found.kind == failure.kind:
                failure, again = found, True
                break
            if tries >= MAX_TRIES:
                break
    return failure


def _simpler(story: Story) -> Iterator[Story]:
    """Simpler stories, those that are much simpler first."""
    count = len(story.steps)
    size = count // 2
    while size:
        for start in range(0, count, size):
            yield attrs.evolve(story, steps=without(story.steps, range(start, min(start + size, count))))
        size //= 2
    for field in attrs.fields(type(story.world)):
        if getattr(story.world, field.name) != field.default:
            yield attrs.evolve(story, world=attrs.evolve(story.world, **{field.name: field.default}))
    for place, step in enumerate(story.steps):
        for simple in _simpler_steps(step):
            yield attrs.evolve(story, steps=(*story.steps[:place], simple, *story.steps[place + 1 :]))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if isinstance(step, SourceStep) and step.act == "commits":
        yield attrs.evolve(step, act="commit")
    if isinstance(step, Batch | Maintain):
        for place in range(len(step.during)):
            yield attrs.evolve(step, during=step.during[:place] + step.during[place + 1 :])
    if isinstance(step, Maintain) and len(step.tasks) > 1:
        for task in step.tasks:
            yield attrs.evolve(step, tasks=(task,))
    if isinstance(step, Batch):
        if not step.whole:
            yield attrs.evolve(step, whole=True)
        if step.process:
            yield attrs.evolve(step, process=0)
