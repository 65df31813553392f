"""Which of the statements that Spark's parser understands are one plain query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.spark.compiler import relation_classes
from lancestat.spark.query_facts import CATALYST, Fact, Facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What the parser makes of queries. Whatever else it makes, or learns to make, runs or writes
# something, or is not known to leave everything as it is.
_QUERY_PLANS = {
    f"{CATALYST}plans.logical": """
        Aggregate AsOfJoin Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin
        LimitAll LocalLimit LocalRelation NearestByJoin Offset OneRowRelation Pivot Project
        Repartition RepartitionByExpression Sample Sort SubqueryAlias Union UnresolvedBinBy
        UnresolvedHint UnresolvedWith Unpivot WithWindowDefinition
    """,
    f"{CATALYST}analysis": """
        RelationChanges RelationTimeTravel UnresolvedHaving UnresolvedInlineTable UnresolvedQualify
        UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
        UnresolvedTableValuedFunction
    """,
    f"{CATALYST}expressions": "PipeOperator",
}
_QUERY_CLASSES = frozenset(
    f"{package}.{name}" for package, names in _QUERY_PLANS.items() for name in names.split()
)
# Their text is not known before it has been evaluated, and may name any function.
_NAMED_BY_VALUE = f"{CATALYST}analysis.ExpressionWithUnresolvedIdentifier"
# They call any method of any Java class.
_REFLECTION = frozenset({"reflect", "java_method", "try_reflect"})
_REFLECTION_CLASSES = frozenset({"CallMethodViaReflection", "TryReflect"})
# Views and functions of a catalog may hide what a query must not hold.
_PROGRAMS = frozenset({"ScriptTransformation"})

_STATEMENTS = {
    "InsertIntoDir": "INSERT OVERWRITE DIRECTORY",
    "InsertIntoStatement": "INSERT",
    "ScriptTransformation": "TRANSFORM with a program",
    "CompoundBody": "a script",
    "UnresolvedExecuteImmediate": "EXECUTE IMMEDIATE",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER with a computed name",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER",
    "NamedStreamingRelation": "a stream",
}


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A text as Spark's parser read it; `plan` is the JVM's. Only a plain one may be run."""

    session: SparkSession
    plan: Any
    facts: Facts

    @property
    def objection(self) -> str | None:
        """What makes it something else than one plain query, None when it is one."""
        return next((found for fact in self.facts if (found := _objection(fact))), None)

    def rows(self) -> DataFrame:
        """The rows of the plan that was looked at; nothing is computed yet."""
        from pyspark.sql import DataFrame

        classes = relation_classes(self.session)
        return DataFrame(classes.rows(self.session._jsparkSession, self.plan), self.session)

    def analyzed(self, rows: DataFrame) -> Facts:
        """What `rows` are made of once all names are resolved."""
        return Facts.of(relation_classes(self.session).analyzedFacts(rows._jdf))


def parse_query(session: SparkSession, text: str) -> ParsedQuery:
    """Read a text with the parser of a session, under its configuration.

    Raises:
        Exception: what PySpark raises where Spark cannot parse it.
    """
    classes = relation_classes(session)
    # Else tables of literals are rows already when the parser returns, and hide what they were.
    session.conf.set("spark.sql.parser.eagerEvalOfUnresolvedInlineTable", "false")
    plan = classes.parse(session._jsparkSession, text)
    return ParsedQuery(session, plan, Facts.of(classes.parsedFacts(plan)))


def hidden_objection(analyzed: Facts) -> str | None:
    """What names of a plain query turned out to stand for that no query may do, if anything."""
    for fact in analyzed:
        if fact.kind == "plan" and (fact.short_name in _PROGRAMS or "Command" in fact.short_name):
            return _STATEMENTS.get(fact.short_name, fact.short_name)
        if fact.kind == "expression" and fact.short_name in _REFLECTION_CLASSES:
            return fact.detail
    return None


def _objection(fact: Fact) -> str | None:
    match fact.kind:
        case "plan" if fact.about not in _QUERY_CLASSES:
            return _STATEMENTS.get(fact.short_name, fact.short_name)
        case "expression" | "early expression" if fact.about == _NAMED_BY_VALUE:
            return _STATEMENTS[fact.short_name]
        case "function" | "early function" | "table function":
            name = str(json.loads(fact.about)[-1]).lower()
            return name if name in _REFLECTION else None
    return None
