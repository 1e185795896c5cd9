"""Dead letter topic -> a list, one dead letter, or their replay (`icebridge dlq`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs
import click
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.written_files import writing
from connector.errors import ConfigError, FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.reader import DeadLetterRecord, mark_replayed, read_dead_letters
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session
from connector.settings import SinkSettings
from connector.sink.factory import build_sink
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.replay import Replayer, ReplayReport


def list_dead_letters(settings: SinkSettings) -> None:
    """Print every dead letter: id, topic, partition and offset of the record, reason, and whether it was replayed."""
    grid = Grid("letter", "record", "stage", "reason", "replayed", title=f"{settings.errors.topic}: dead letters")
    for letter in _read_dead_letters(settings):
        place = f"{letter.topic}-{letter.partition} offset {letter.offset}"
        grid.add_row(letter.id, place, letter.stage, letter.reason, "yes" if letter.replayed else "")
    open_console().print(grid)


def show_dead_letter(settings: SinkSettings, *, letter: str, save: Path | None) -> None:
    """Print one dead letter, or save its key and value as `<id>.key` and `<id>.value` to be repaired."""
    (dead_letter,) = _choose_dead_letters(_read_dead_letters(settings), (letter,))
    place = f"{dead_letter.topic}-{dead_letter.partition} offset {dead_letter.offset}"
    click.echo(f"{place}: {dead_letter.stage}: {dead_letter.reason}")
    for name, data in (("key", dead_letter.key), ("value", dead_letter.value)):
        if save is None or data is None:
            left_out = dead_letter.omitted if name == "value" else dead_letter.key_omitted
            click.echo(f"{name}: {_to_text(data, omitted=left_out)}")
        else:
            path = save / f"{dead_letter.id}.{name}"
            with writing(path, "--save"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            click.echo(f"saved {path}")


def _to_text(data: bytes | None, *, omitted: bool) -> str:
    if omitted:
        return "left out, as it was too large for the dead letter topic; it is in the record"
    return "null" if data is None else data.decode("utf-8", "backslashreplace")


def replay_dead_letters(
    settings: SinkSettings, *, letters: tuple[str, ...], repaired: Path | None, execute: bool
) -> None:
    """Replay dead letters that were not replayed yet; without `execute` only print what would happen.

    Args:
        settings: the sink's, which must not run meanwhile.
        letters: ids; all when none is given.
        repaired: folder with `<id>.key` and `<id>.value` that stand for what the letter has.
        execute: do it.
    """
    known = _read_dead_letters(settings)
    waiting = [one for one in _choose_dead_letters(known, letters) if not one.replayed]
    waiting = [_with_repaired(one, repaired) for one in waiting]
    if not waiting:
        click.echo("there are no dead letters to replay")
        return
    cluster = KafkaAdmin(settings.kafka)
    cluster_state = call_with_retries(lambda: inspect_cluster(cluster), settings.errors)
    with (
        open_session(settings) as spark,
        closing(build_sink(spark, settings, cluster_state=cluster_state, prime=False, is_dry=not execute)) as sink,
    ):
        replayer = Replayer(settings, sink.destination, sink.batches, cluster, known)
        result = replayer.replay(waiting, execute=execute)
    if execute:
        through = {*result.done, *result.overtaken}
        mark_replayed(settings.kafka, settings.errors.topic, [one for one in waiting if one.id in through])
    _print_outcome(waiting, result, place=sink.destination.target_kind, execute=execute)


def _read_dead_letters(settings: SinkSettings) -> list[DeadLetterRecord]:
    def read() -> list[DeadLetterRecord]:
        return read_dead_letters(KafkaAdmin(settings.kafka), settings.kafka, settings.errors.topic, settings.name)

    return call_with_retries(read, settings.errors)


def _choose_dead_letters(dead_letters: Sequence[DeadLetterRecord], wanted: tuple[str, ...]) -> list[DeadLetterRecord]:
    unknown = set(wanted) - {letter.id for letter in dead_letters}
    if unknown:
        raise ConfigError(f"--letter {', '.join(sorted(unknown))}: no such dead letter; see icebridge dlq list")
    return [letter for letter in dead_letters if not wanted or letter.id in wanted]


def _with_repaired(letter: DeadLetterRecord, folder: Path | None) -> DeadLetterRecord:
    if folder is None:
        return letter
    key, value = (_read_file(folder / f"{letter.id}.{name}") for name in ("key", "value"))
    return attrs.evolve(
        letter,
        key=letter.key if key is None else key,
        value=letter.value if value is None else value,
        omitted=letter.omitted and value is None,
    )


def _read_file(path: Path) -> bytes | None:
    """Return what a file holds, None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as wrong:
        raise FatalError(f"{path}: cannot be read ({wrong.strerror}); check its rights") from wrong


def _print_outcome(letters: Sequence[DeadLetterRecord], result: ReplayReport, *, place: str, execute: bool) -> None:
    grid = Grid("letter", "record", "outcome", title="replayed" if execute else "dry run")
    for letter in letters:
        if letter.id in result.dead:
            outcome = f"still dead: {result.dead[letter.id]}"
        else:
            late = letter.id in result.overtaken
            outcome = "later records changed its key: left out" if late else f"in its {place}"
        grid.add_row(letter.id, f"{letter.topic}-{letter.partition} offset {letter.offset}", outcome)
    open_console().print(grid)
    if not execute:
        click.echo("nothing was changed; use --execute to do it")
