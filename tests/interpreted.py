"""Spark for tests: what takes longer than a test's few rows is left out."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark without compilers.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def short_lived() -> dict[str, str]:
    """Return the environment in which Spark interprets, and its JVM optimises nothing."""
    options = ("-XX:TieredStopAtLevel=1", os.environ.get("JDK_JAVA_OPTIONS", ""))
    conf = " ".join(f"--conf {key}={value}" for key, value in INTERPRETED.items())
    return {
        "JDK_JAVA_OPTIONS": " ".join(options).strip(),
        "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
    }


def compiled(spark: SparkSession) -> SparkSession:
    """Return a new session of a Spark that interprets, which compiles queries."""
    session = spark.newSession()
    for key in INTERPRETED:
        session.conf.unset(key)
    return session


@cache
def remember_names() -> None:
    """Have this process ask its JVM once what a name is, such as `org.apache` or `org.apache.Foo`.

    To find that it is no class, the JVM looks into each of Spark's jars, each time: a tenth of
    what tests take.
    """
    from py4j import protocol
    from py4j.java_gateway import GatewayClient

    send = GatewayClient.send_command
    question = protocol.REFLECTION_COMMAND_NAME + protocol.REFL_GET_UNKNOWN_SUB_COMMAND_NAME
    answers: dict[str, str] = {}

    def remembered(self: GatewayClient, command: str, *rest: object, **more: object) -> str:
        if command in answers:
            return answers[command]
        answer: str = send(self, command, *rest, **more)
        if command.startswith(question):
            name = command.splitlines()[2].rpartition(".")[2]
            # Not that there is no class yet: it may come.
            is_package = answer == protocol.SUCCESS_PACKAGE and name.islower()
            if is_package or answer.startswith(protocol.SUCCESS_CLASS):
                answers[command] = answer
        return answer

    GatewayClient.send_command = remembered
