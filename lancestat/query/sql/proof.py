"""Proves that a query gives the same rows as long as its tables have the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.spark.compiler import relation_classes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CATALYST = "org.apache.spark.sql.catalyst."


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind of thing that occurs in a plan.

    `kind` says what `about` is: the class of a `plan` or an `expression`, the JSON list of the
    parts of a `relation` or `function`, the type of a `literal`, and so on. `detail` depends on it.
    """

    kind: str
    about: str
    detail: str = ""

    @property
    def short_name(self) -> str:
        """The last part of a class's name."""
        return self.about.rpartition(".")[2].rstrip("$")


Facts = tuple[Fact, ...]


def _facts(lines: Iterable[str]) -> Facts:
    return tuple(Fact(*line.split("\t", 2)) for line in lines)


# The parser's plans of queries. Any other plan, also one of a later Spark, may run or write
# something.
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
    """A query as Spark's parser read it; `plan` is the JVM's. Only a plain query may be run."""

    session: SparkSession
    plan: Any
    facts: Facts

    @property
    def objection(self) -> str | None:
        """The reason why it is not one plain query, None when it is one."""
        return next((reason for fact in self.facts if (reason := _objection(fact))), None)

    def rows(self) -> DataFrame:
        """Return the rows of the plan that was looked at; nothing is computed yet."""
        from pyspark.sql import DataFrame

        classes = relation_classes(self.session)
        return DataFrame(classes.rows(self.session._jsparkSession, self.plan), self.session)

    def analyzed(self, rows: DataFrame) -> Facts:
        """Return the facts about `rows` once all names are resolved."""
        return _facts(relation_classes(self.session).analyzedFacts(rows._jdf))


def parse_query(session: SparkSession, text: str) -> ParsedQuery:
    """Read a text with the parser of a session, under its configuration.

    Raises:
        ParseException: PySpark's, where Spark cannot parse it.
    """
    classes = relation_classes(session)
    # Else tables of literals are rows already when the parser returns, and hide what they were.
    session.conf.set("spark.sql.parser.eagerEvalOfUnresolvedInlineTable", "false")
    plan = classes.parse(session._jsparkSession, text)
    return ParsedQuery(session, plan, _facts(classes.parsedFacts(plan)))


def hidden_objection(analyzed: Facts) -> str | None:
    """Return a forbidden operation that the names of a plain query stand for, None for none."""
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
        case "stream":
            # Spark before 4.2 has no plan of its own for it.
            return _STATEMENTS["NamedStreamingRelation"]
    return None


# The parser's plans, less those that take some rows of many, name a time or evaluate early.
_PARSED = """
Aggregate Distinct Except Filter Generate Intersect Join LateralJoin LimitAll OneRowRelation
PipeOperator Project Repartition RepartitionByExpression Sort SubqueryAlias Union Unpivot
UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedRelation
UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
"""
_ANALYZED = """
Aggregate CTERelationDef CTERelationRef DataSourceV2Relation Distinct Except Expand Filter
Generate Intersect Join LateralJoin LocalRelation OneRowRelation PipeOperator Project Range
Repartition RepartitionByExpression ResolvedHint Sort SubqueryAlias Union View WithCTE
"""
_TABLE = "lancestat.relation.LanceTable"
# What inline tables and table functions may be made of: the analyzer evaluates that, and what
# is left of it are literals.
_EARLY = "Literal UnaryMinus UnaryPositive UnresolvedAlias UnresolvedFunction"
_EARLY_FUNCTIONS = "array map named_struct struct"
_EXPRESSIONS = {
    "columns, values and their parts": """
        Alias AttributeReference Cast CommonExpressionDef CommonExpressionRef CreateArray CreateMap
        CreateNamedStruct ElementAt GetArrayItem GetArrayStructFields GetMapValue GetStructField
        LambdaFunction Literal NamedLambdaVariable OuterReference SortOrder With
    """,
    "conditions": """
        And Between CaseWhen Coalesce Contains EndsWith EqualNull EqualNullSafe EqualTo Greatest
        GreaterThan GreaterThanOrEqual ILike If In InSet InSubquery IsNaN IsNotNull IsNull Least
        LessThan LessThanOrEqual Like LikeAll LikeAny NaNvl Not NotLikeAll NotLikeAny NullIf Nvl
        Nvl2 Or RLike StartsWith
    """,
    "numbers": """
        Abs Add BRound BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil CheckOverflow Divide Exp
        Floor IntegralDivide Log Log10 Log2 Logarithm Multiply Pmod Pow Remainder Round RoundCeil
        RoundFloor ShiftLeft ShiftRight Signum Sqrt Subtract UnaryMinus UnaryPositive
    """,
    "text and binary": """
        Ascii Base64 BitLength Concat ConcatWs Crc32 Hex InitCap Left Length Lower Md5 Murmur3Hash
        OctetLength Overlay RegExpExtract RegExpReplace Reverse Right Sha1 Sha2 StringInstr
        StringLPad StringLocate StringRPad StringRepeat StringReplace StringSplit StringTranslate
        StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring SubstringIndex UnBase64
        Unhex Upper XxHash64
    """,
    "dates, which have no zone": """
        AddMonths DateAdd DateAddYMInterval DateDiff DateSub DatetimeSub DayOfMonth DayOfWeek
        DayOfYear ExtractANSIIntervalDays LastDay MakeDate Month NextDay Quarter WeekDay WeekOfYear
        Year
    """,
    "lists and maps": """
        ArrayAggregate ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll
        ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayRepeat ArrayTransform
        ArrayUnion ArraysOverlap ArraysZip Explode Flatten Inline MapKeys MapValues PosExplode Size
        Slice SortArray ZipWith
    """,
    "queries in expressions, groups and sums": """
        AggregateExpression Average BoolAnd BoolOr Count CountIf Exists Grouping GroupingID
        LateralSubquery ListQuery Max Min ScalarSubquery Sum
    """,
}
_KNOWN_PARSED = frozenset(_PARSED.split())
_KNOWN_ANALYZED = frozenset(_ANALYZED.split())
_KNOWN_EARLY = frozenset(_EARLY.split())
_KNOWN_EARLY_FUNCTIONS = frozenset(_EARLY_FUNCTIONS.split())
_KNOWN_EXPRESSIONS = frozenset(name for part in _EXPRESSIONS.values() for name in part.split())
# Literals of these types are what they were written as. Instants follow the session's time zone.
_LITERALS = re.compile(
    r"void|boolean|byte|short|integer|long|float|double|decimal\(.*|string.*|binary|interval.*"
    r"|array|map|struct"
)
# Sums of others depend on the order of the rows. Averages of whole numbers are made of sums of
# doubles, which stay exact for small ones only.
_EXACT_SUMS = re.compile(r"byte|short|integer|long|decimal\(.*|interval.*")
_EXACT_AVERAGES = re.compile(r"byte|short|decimal\(.*|interval.*")
_DAY = r"\d{4}-\d{1,2}-\d{1,2}"
_DATE = re.compile(rf"date\s*(['\"]){_DAY}\1", re.IGNORECASE)

_UNDECLARED = "reads what the project does not declare"
_CLOCK = "has a time that depends on the clock or the time zone"
_UNKNOWN = "calls a function that is not built into Spark"
_ROWS = {
    "GlobalLimit": "takes some rows of many",
    "LocalLimit": "takes some rows of many",
    "Offset": "takes some rows of many",
    "Sample": "takes some rows of many",
    "RelationChanges": _UNDECLARED,
    "RelationTimeTravel": _UNDECLARED,
}


def unproven(text: str, parsed: Facts, analyzed: Facts, declared: Iterable[str]) -> tuple[str, ...]:
    """Return why a query is not proven, in words that follow "its query"; empty if it is.

    The reasons, which are stored and shown, hold no text of the query. `declared` are the names of
    the declared tables, which are views for the query.
    """
    names = {name.lower() for name in declared} | {
        fact.about.lower() for fact in parsed if fact.kind == "cte"
    }
    reasons = [
        *(_parsed(fact, names) for fact in parsed),
        *(_analyzed(fact) for fact in analyzed),
        "uses ${...}" if "${" in text else None,
    ]
    return tuple(sorted({reason for reason in reasons if reason is not None}))


def _parsed(fact: Fact, names: set[str]) -> str | None:
    match fact.kind:
        case "plan" if fact.short_name not in _KNOWN_PARSED:
            return _ROWS.get(fact.short_name, f"uses {fact.short_name}")
        case "relation":
            parts = json.loads(fact.about)
            return None if len(parts) == 1 and parts[0].lower() in names else _UNDECLARED
        case "literal" if fact.about == "date":
            return None if _DATE.fullmatch(fact.detail) else _CLOCK
        case "literal":
            return None if _LITERALS.fullmatch(fact.about) else _CLOCK
        case "early expression" if fact.short_name not in _KNOWN_EARLY:
            return "computes the values of a table in the query"
        case "early function" if json.loads(fact.about)[-1].lower() not in _KNOWN_EARLY_FUNCTIONS:
            return "computes the values of a table in the query"
        case "table function" if json.loads(fact.about) != ["range"]:
            return "calls a table function"
    return None


def _analyzed(fact: Fact) -> str | None:
    match fact.kind:
        case "plan" if fact.short_name not in _KNOWN_ANALYZED:
            is_sparks = fact.about.startswith(CATALYST)
            is_relation = fact.short_name.endswith("Relation")
            return f"uses {fact.short_name}" if is_sparks and not is_relation else _UNDECLARED
        case "view" if fact.about != "temporary":
            return _UNDECLARED
        case "table" if fact.about != _TABLE:
            return _UNDECLARED
        case "expression" if not _is_known(fact):
            if not fact.about.startswith(f"{CATALYST}expressions."):
                return _UNKNOWN
            return f"calls '{fact.detail}'" if fact.detail else f"uses {fact.short_name}"
        case "nondeterministic" if _is_known(fact):
            return "calls what may give another answer each time"
        case "literal" if not (fact.about == "date" or _LITERALS.fullmatch(fact.about)):
            return _CLOCK
        case "zoned cast":
            return _CLOCK
        case "text cast" if not (fact.about == "date" and re.fullmatch(_DAY, fact.detail)):
            return _CLOCK
        case "sum" if not (_EXACT_AVERAGES if fact.detail == "avg" else _EXACT_SUMS).fullmatch(
            fact.about
        ):
            return f"calls '{fact.detail}' over numbers whose sum depends on their order"
    return None


def _is_known(fact: Fact) -> bool:
    package, _, name = fact.about.rpartition(".")
    is_sparks = package in (f"{CATALYST}expressions", f"{CATALYST}expressions.aggregate")
    return is_sparks and name.rstrip("$") in _KNOWN_EXPRESSIONS
