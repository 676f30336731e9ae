"""The verb ``init``: a first document, from options and a few answers."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import write_line, write_note, write_text
from frazil.config.loader import DEFAULT_PATH, parse_config
from frazil.config.models.naming import LONGEST_PIPELINE_NAME
from frazil.config.starter_document import USUAL_READERS, FirstAnswers, first_document
from frazil.errors import ConfigError
from frazil.model.command import command, quote_argument
from frazil.model.policy import CatalogKind, FirstSource
from frazil.model.readers import FILES_FORMAT, VECTORS_FORMAT, Reader, without_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

TO_THE_TERMINAL = Path("-")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATABASES = frozenset({FirstSource.POSTGRES, FirstSource.BUFFER})


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What the operator typed; options that were left out are None."""

    output: Path
    options: Mapping[str, str | None]
    force: bool


def write_first_document(request: InitRequest) -> None:
    """Prompt for what is missing, make the text, prove that it loads, and write it."""
    output = request.output
    if output != TO_THE_TERMINAL and output.exists() and not request.force:
        message = f"{output} is there already."
        raise ConfigError(
            message, next_step="name another file by --output, or repeat with --force"
        )
    answers = _answers(request)
    text = first_document(answers)
    # Before anything is written: a wrong answer is reported like a mistake in a document.
    parse_config(text, output, environ=answers.variables)
    if output == TO_THE_TERMINAL:
        write_text(text.rstrip())
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{output} cannot be written: {(error.strerror or 'unknown reason').lower()}."
        raise ConfigError(message, next_step="name another file by --output") from error
    write_line(f"wrote {output}")
    note = _format_note(answers)
    if note is not None:
        write_note(note)
    for line in next_steps(answers, output):
        write_note(line)


def next_steps(answers: FirstAnswers, output: Path) -> tuple[str, ...]:
    """What to type now."""
    option = () if output == Path(DEFAULT_PATH) else ("-c", output)
    sets = [
        f"  export {name}={quote_argument(sample)}   # yours, of course"
        for name, sample in answers.variables.items()
    ]
    readers = () if answers.readers == USUAL_READERS else answers.readers
    named = [part for each in readers for part in ("--reader", each.value)]
    return ("next:", *sets, f"  {command('check', *named, *option)}")


def _answers(request: InitRequest) -> FirstAnswers:
    prompt = _Prompts(request.options, is_terminal=sys.stdin.isatty())
    pipeline = prompt.text("pipeline", "Name of the pipeline", _folder_name(request.output))
    source = FirstSource(
        prompt.choice("source", "Where changes come from", FirstSource.POSTGRES, FirstSource)
    )
    usual = FirstAnswers(pipeline=pipeline, source=source)
    variable, tables = usual.dsn_variable, ",".join(usual.tables)
    if source in _DATABASES:
        variable = prompt.text("dsn_variable", "Variable with the connection string", variable)
    if _VARIABLE.fullmatch(variable) is None:
        raise ConfigError("--dsn-variable: must be the name of a variable, not its value.")
    if source is FirstSource.POSTGRES:
        tables = prompt.text("table", "Tables, with * and ?, separated by commas", tables)
    catalog = prompt.choice("catalog", "Kind of catalog", usual.catalog, CatalogKind)
    warehouse = prompt.text("warehouse", "Where tables are kept", usual.warehouse)
    return FirstAnswers(
        pipeline=pipeline,
        source=source,
        dsn_variable=variable,
        tables=tuple(each.strip() for each in tables.split(",")),
        catalog=CatalogKind(catalog),
        warehouse=warehouse,
        readers=prompt.readers(usual.readers),
    )


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Options first, then a prompt on a terminal, then the defaults."""

    options: Mapping[str, str | None]
    is_terminal: bool

    def text(self, name: str, question: str, usual: str) -> str:
        given = self.options.get(name)
        if given is not None:
            return str(given)
        return str(typer.prompt(question, default=usual, err=True)) if self.is_terminal else usual

    def choice(
        self, name: str, question: str, usual: str, choices: type[FirstSource] | type[CatalogKind]
    ) -> str:
        known = [choice.value for choice in choices]
        while True:
            said = self.text(name, f"{question} ({', '.join(known)})", str(usual))
            if said in known:
                return said
            write_note(f"one of {', '.join(known)}, please")

    def readers(self, usual: tuple[Reader, ...]) -> tuple[Reader, ...]:
        """Any number of them."""
        known = ", ".join(Reader)
        question = f"Who reads the tables, separated by commas ({known})"
        while True:
            said = self.text("reader", question, ",".join(usual))
            named = [each.strip() for each in said.split(",")]
            if all(each in set(Reader) for each in named):
                return tuple(dict.fromkeys(map(Reader, named)))
            write_note(f"some of {known}, please")


def _format_note(answers: FirstAnswers) -> str | None:
    """Why tables get the older format, if they do."""
    named = ", ".join(without_vectors(answers.readers))
    if not named:
        return None
    return (
        f"mirror.format_version is {FILES_FORMAT}: deletion vectors, which {VECTORS_FORMAT} has, "
        f"are not known to be read by {named}"
    )


def _folder_name(output: Path) -> str:
    """A name that a pipeline may have, from the folder of the document."""
    folder = output.absolute().parent.name.lower()
    return re.sub(r"[^a-z0-9]+", "_", folder).strip("_")[:LONGEST_PIPELINE_NAME] or "pipeline"
