"""Subcommands, the options that all of them share, and their exit codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lancestat.cli.completion import complete_selector, complete_target
from lancestat.errors import InvalidProject
from lancestat.presentation.terminal import CONSOLE, limit, paint, width
from lancestat.presentation.views import FORMATS, Page, RunView, can_render, formats_of, load_format
from lancestat.redact import Audience

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lancestat.pipelines.artifacts import Artifacts
    from lancestat.project import Project
    from lancestat.runs.result import RunResult

F = TypeVar("F", bound=Callable[..., object])


class ExitCode(IntEnum):
    """The exit codes of every command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    CHANGES_PENDING = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


LOG_FORMATS = ("text", "json")

# Environment variables carry this prefix before and after the subcommand alike.
ENVIRONMENT = "LANCESTAT"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The values of the shared options; `project_dir` is None where it was not given."""

    project_dir: Path | None = None
    target: str | None = None
    vars: Mapping[str, object] = field(default_factory=dict)
    output: str = "text"
    log_format: str = "text"
    quiet: bool = False
    verbose: bool = False
    # Whether the process ends with the command.
    ends_process: bool = False

    @property
    def project_folder(self) -> Path:
        """The project's folder: the given one, else the nearest of the current and those above."""
        from lancestat.spec.files import nearest_project

        if self.project_dir is not None:
            return self.project_dir
        nearest = nearest_project(Path.cwd())
        return Path() if nearest == Path.cwd() else nearest

    def project(self) -> Project:
        import logging

        from lancestat.project import Project

        folder = self.project_folder
        logging.getLogger("lancestat").info("the project is in %s", folder.resolve())
        project = Project.load(folder, target=self.target, vars=dict(self.vars))
        CONSOLE.redact_with(project.spec.redactor)
        return project

    def show(self, view: object) -> None:
        page = Page(self.verbose, width(), CONSOLE.audience, CONSOLE.redactor, limit())
        load_format(self.output).print(view, page)

    @property
    def is_for_people(self) -> bool:
        return load_format(self.output).is_for_people

    def require(self, view: type, subject: str) -> None:
        """Refuse the wanted format where it cannot print a view."""
        _require(self.output, [view], subject)

    def say(self, text: str) -> None:
        if not self.quiet:
            CONSOLE.err(text)

    def overridden(self, options: Mapping[str, object]) -> Invocation:
        """The same invocation with the options that were given a second time."""
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(given.get("vars"), dict):
            given["vars"] = {**self.vars, **given["vars"]}  # type: ignore[dict-item]
        return replace(self, **given)  # type: ignore[arg-type]


class Vars(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A YAML mapping such as `k: v` or `{a: 1, b: 2}`."""

    name = "yaml"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        from lancestat.spec.document import read_document

        text = str(value)
        if not text.strip():
            return {}
        try:
            # Bytes of the command line that are not UTF-8 are named as such.
            document = read_document(text.encode("utf-8", "surrogateescape"), "--vars")
        except InvalidProject as invalid:
            self.fail("; ".join(f"{error.location}  {error.message}" for error in invalid.errors))
        if not isinstance(document.value, dict):
            self.fail("this is not a YAML mapping; write 'name: value'.")
        return document.value


class FormatName(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of an output format, of which those are offered that print one of `views`."""

    name = "format"

    def __init__(self, views: Sequence[type] = ()) -> None:
        self.views = views

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(formats_of(self.views))}]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Accept every format; whether a command prints it is checked when the command runs."""
        if value not in FORMATS:
            known = ", ".join(map(repr, formats_of(self.views)))
            self.fail(f"{value!r} is not one of {known}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(n) for n in formats_of(self.views) if n.startswith(incomplete)]


def _require(output: str, views: Sequence[type], subject: str) -> None:
    if not can_render(output, views):
        *others, last = formats_of(views)
        known = " or ".join((", ".join(others), last) if others else (last,))
        text = f"{subject} prints {known}, not {output}."
        raise click.UsageError(text, click.get_current_context())


def shared_options(*, from_environment: bool, views: Sequence[type] = ()) -> list[click.Option]:
    """The global options; their copies after a subcommand leave the environment to the first."""

    def option(*names: str, **attributes: Any) -> click.Option:
        return click.Option(names, allow_from_autoenv=from_environment, **attributes)

    flag = {"is_flag": True, "default": None}
    folder = click.Path(path_type=Path, file_okay=False)
    target = {"metavar": "NAME", "shell_complete": complete_target}
    return [
        option(
            "--project-dir", type=folder, help="Folder of the project (default: this one or above)."
        ),
        option("--target", "-t", **target, help="Target to use (default: the project's)."),
        option("--vars", type=Vars(), metavar="YAML", help="Values for var(): 'name: value'."),
        option("--output", type=FormatName(views), help="Format of the result (default: text)."),
        option(
            "--log-format",
            type=click.Choice(LOG_FORMATS),
            help="Format of what goes to stderr (default: text).",
        ),
        option("--quiet", **flag, help="Print only the result and errors."),
        option("--verbose", **flag, help="Print log messages, and tracebacks of errors."),
    ]


SHARED = frozenset(option.name for option in shared_options(from_environment=False))


class Command(click.Command):
    """A subcommand that accepts the global options too.

    It prints one of `views`, in the formats that can render it; without any, in every format. What
    it prints may be published if `is_published`, and whatever is in a format made for that.
    """

    def __init__(
        self,
        name: str | None,
        *,
        views: Sequence[type] = (),
        is_published: bool = False,
        **attributes: object,
    ) -> None:
        self.views = views
        self.is_published = is_published
        attributes["context_settings"] = {"auto_envvar_prefix": ENVIRONMENT}
        super().__init__(name, **attributes)  # type: ignore[arg-type]
        self.params += shared_options(from_environment=False, views=views)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; say how several selectors are written where they stand alone."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            takes_selectors = any(param.name == "select" for param in self.params)
            if takes_selectors and "unexpected extra argument" in error.message:
                hint = "Several selectors are one argument: --select 'orders lineitem'."
                raise click.UsageError(f"{error.message}. {hint}", ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> object:
        """Fold the global options into the invocation, then run."""
        given = {name: ctx.params.pop(name) for name in SHARED if name in ctx.params}
        before = ctx.obj if isinstance(ctx.obj, Invocation) else Invocation()
        ctx.obj = before.overridden(given)
        if ctx.parent is not None:
            # Errors are reported by the root, which must know of a --verbose given here.
            ctx.parent.obj = ctx.obj
        if ctx.obj.quiet and ctx.obj.verbose:
            raise click.UsageError("--quiet and --verbose exclude each other.", ctx)
        _require(ctx.obj.output, self.views, f"'{self.name}'")
        is_public = self.is_published or load_format(ctx.obj.output).is_published
        audience = Audience.PUBLIC if is_public else Audience.PERSON
        CONSOLE.begin(audience, logs_json=ctx.obj.log_format == "json")
        set_up_logging(quiet=ctx.obj.quiet, verbose=ctx.obj.verbose)
        code = super().invoke(ctx)
        if isinstance(code, ExitCode):
            ctx.exit(code)
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the command's own options before those that every command has."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record:
                (shared if param.name in SHARED else own).append(record)
        for title, records in (("Options", own), ("Global options", shared)):
            with formatter.section(title):
                formatter.write_dl(records)


def command(
    *views: type, name: str | None = None, is_published: bool = False
) -> Callable[[F], Command]:
    """Declare a subcommand, whose help is the docstring of its function.

    The function takes an `Invocation` first, and returns the exit code, None for success.
    """

    def wrap(function: F) -> Command:
        attributes = {"views": views, "is_published": is_published}
        declare = click.command(name or function.__name__, cls=Command, **attributes)
        return declare(click.pass_obj(function))

    return wrap


def run_nodes(
    invocation: Invocation,
    artifacts: Artifacts | None,
    execute: Callable[..., RunResult],
    *arguments: object,
    **options: object,
) -> ExitCode | None:
    """Run nodes and print their results, also when that was interrupted."""
    from lancestat.cli.progress import progress_display
    from lancestat.runs.events import EventStream
    from lancestat.runs.result import RunInterrupted

    try:
        with progress_display(quiet=invocation.quiet) as progress:
            listeners = EventStream(filter(None, (progress, artifacts)))
            result = execute(*arguments, on_event=listeners.emit, **options)
    except RunInterrupted as interrupted:
        invocation.show(RunView(interrupted.result))
        raise
    invocation.show(RunView(result))
    return ExitCode.FAILURE if result.failures else None


def artifact_options(function: Callable[..., object]) -> Callable[..., object]:
    """Declare `--artifacts` and `--no-artifacts`, as the one argument `artifacts`.

    It makes what writes artifacts of a project, None where none are wanted.
    """
    from functools import wraps

    @wraps(function)
    def wrapped(
        *arguments: Any, artifacts: Path | None, no_artifacts: bool, **options: Any
    ) -> object:
        context = click.get_current_context()
        if artifacts is not None and no_artifacts:
            raise click.UsageError("--artifacts and --no-artifacts exclude each other.", context)

        def made(project: Project) -> Artifacts | None:
            from lancestat.pipelines.artifacts import FOLDER, Artifacts

            if no_artifacts:
                return None
            args = {"command": context.info_name, **_given(options)}
            return Artifacts(lambda: project.spec, artifacts or project.spec.root / FOLDER, args)

        return function(*arguments, artifacts=made, **options)

    folder = path_option(
        "--artifacts",
        help="Write artifacts to a folder (default: target in the project).",
        metavar="DIR",
    )
    return folder(click.option("--no-artifacts", is_flag=True, help="Write none.")(wrapped))


def _given(options: Mapping[str, object]) -> dict[str, object]:
    """Return options as JSON has them."""
    return {name: str(v) if isinstance(v, Path) else v for name, v in options.items()}


def path_option(
    name: str, *, help: str, metavar: str = "FILE", default: Path | None = None, **kind: bool
) -> Callable[[F], F]:
    """Declare an option that takes a path, of a `kind` as `click.Path` knows it."""
    path = click.Path(path_type=Path, **kind)
    return click.option(name, type=path, metavar=metavar, default=default, help=help)


Selectors = list[str] | None
MakeArtifacts = Callable[["Project"], "Artifacts | None"]


def selection_options(function: F) -> F:
    """Declare `--select` and `--exclude`: lists, or None, which selects everything."""
    about = {
        "--exclude": "Leave these nodes out; same syntax as --select.",
        "--select": "Only these nodes: a name or glob, tag:x, path:x.yml, kind:table, source:lake, "
        "state:new, state:modified, +name, name+; a space is a union, a comma an intersection.",
    }
    for option, text in about.items():
        function = click.option(
            *([option, "-s"] if option == "--select" else [option]),
            multiple=True,
            metavar="SELECTOR",
            shell_complete=complete_selector,
            callback=lambda ctx, param, selectors: list(selectors) or None,
            help=text,
        )(function)
    return function


def execution_options(function: F) -> F:
    threads = click.IntRange(min=1)
    function = click.option(
        "--threads", type=threads, metavar="N", help="How many nodes run concurrently."
    )(function)
    return click.option(
        "--fail-fast", is_flag=True, help="Start no further nodes once one has failed."
    )(function)


def budget_options(function: F) -> F:
    """Declare `--max-bytes` and `--max-minutes`, which override the budget of the target."""

    def size_in_bytes(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> int | None:
        import re

        from lancestat.spec.declaration import SIZE

        if text is None:
            return None
        if text.isascii() and text.isdigit():
            return int(text)
        if not re.match(str(SIZE.keywords["pattern"]), text) or SIZE.read is None:
            raise click.BadParameter(f"{text!r} is not {SIZE.title}.")
        return int(SIZE.read(text))

    function = click.option(
        "--max-minutes",
        type=click.FloatRange(min=0, min_open=True, max=1_000_000),
        metavar="N",
        help="Begin nothing more after N minutes (default: the target's budget).",
    )(function)
    return click.option(
        "--max-bytes",
        callback=size_in_bytes,
        metavar="SIZE",
        help="Read at most so much of tables, such as 100GB (default: the target's budget).",
    )(function)


def set_up_logging(*, quiet: bool, verbose: bool) -> None:
    """Print warnings to stderr; with `verbose` all that is logged, with `quiet` errors only."""
    import logging

    class ConsoleHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level, message = record.levelname.lower(), record.getMessage()
            word = f"{level}:"
            word = paint(word, "refresh") if record.levelno >= logging.WARNING else word
            line = message if CONSOLE.logs_json else f"{word} {message}"
            CONSOLE.err(line, level=level, logger=record.name)

    handler = ConsoleHandler(logging.ERROR if quiet else logging.NOTSET)
    logger = logging.getLogger("lancestat")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
