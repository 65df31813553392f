"""`lancestat debug`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, command
from lancestat.cli.failure import ExitCode
from lancestat.presentation.views import Answer

if TYPE_CHECKING:
    from lancestat.cli.checks import Check


@command("debug", help="Check Java, Spark, libraries, storage.", views=[Answer])
@click.option(
    "--warm-up",
    is_flag=True,
    help="Only write the class archive that halves the time Spark takes to start.",
)
@click.pass_context
def debug(context: click.Context, invocation: Invocation, warm_up: bool) -> None:
    from lancestat.cli.checks import (
        check_class_archive,
        check_environment,
        check_package,
        check_project,
        check_sources,
        check_spark,
        check_state,
        check_tables,
        make_class_archive,
    )
    from lancestat.spark.start import remote_of

    invocation.say("running checks; starting Spark takes a few seconds")
    if warm_up:
        checks = list(check_environment())
        can_start = all(check.passed for check in checks)
        _show(context, invocation, [*checks, make_class_archive()] if can_start else checks)
        return
    verdict, project = check_project(invocation.project)
    # A client of Spark Connect starts no JVM.
    needs_java = project is None or remote_of(project.spec.target) is None
    checks = list(check_environment(needs_java=needs_java))
    can_start = all(check.passed for check in checks)
    checks.append(verdict)
    if project is not None:
        spec = project.discover()
        checks += check_sources(spec)
        checks += check_tables(spec)
        checks.append(check_state(project))
        target = project.spec.target
        packages = list(check_package(target))
        checks += packages
        if can_start:
            if needs_java:
                checks.append(check_class_archive(target))
            if all(check.passed for check in packages):
                checks.append(check_spark(target))
    _show(context, invocation, checks)


def _show(context: click.Context, invocation: Invocation, checks: list[Check]) -> None:
    from lancestat.cli.checks import checks_answer

    invocation.show(checks_answer(checks))
    if not all(check.passed for check in checks):
        context.exit(ExitCode.FAILURE)
