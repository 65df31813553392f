package lancestat.relation;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.Iterator;

/**
 * A logical plan in the estimator's JSON: its operators, each after those that it reads. Columns are
 * named by the numbers that Spark gives them.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class PlanQuestion {
  static final String ENABLED = "spark.lancestat.estimates.enabled";

  // Null for those inside of others, as the plan of a stage that runs.
  final List operators = new ArrayList();
  private final ArrayNode json = LanceRelation.JSON.createArrayNode();
  private LanceTable table;
  // By the numbers of attributes: the scans that they are read by, and what computes them.
  private final Map sources = new HashMap();
  private final Map computed = new HashMap();
  // The numbers of attributes that conditions are about.
  private final Set conditioned = new HashSet();

  PlanQuestion(LogicalPlan plan) {
    findConditioned(plan);
    add(plan, true);
  }

  /** Whether a session has estimates of whole plans: not without Spark's cost-based optimizer. */
  static boolean isEnabled() {
    return SQLConf.get().cboEnabled()
        && "true".equalsIgnoreCase(SQLConf.get().getConfString(ENABLED, "true"));
  }

  /** Whether some operator reads a table of which something is known. */
  boolean isAnswerable() {
    return table != null;
  }

  ObjectNode request(String op) {
    ObjectNode request = LanceRelation.JSON.createObjectNode().put("op", op);
    request.put("table", table.handle);
    request.set("operators", json);
    return request;
  }

  JsonNode ask(ObjectNode request) throws JsonProcessingException {
    return table.ask(request);
  }

  private void findConditioned(LogicalPlan plan) {
    if (plan instanceof Filter) {
      Iterator columns = ((Filter) plan).condition().references().iterator();
      while (columns.hasNext()) {
        conditioned.add(((Attribute) columns.next()).exprId());
      }
    }
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      findConditioned((LogicalPlan) children.next());
    }
  }

  private int add(LogicalPlan plan, boolean isOwn) {
    List inputs = new ArrayList();
    if (plan instanceof LogicalQueryStage) {
      inputs.add(Integer.valueOf(add(((LogicalQueryStage) plan).logicalPlan(), false)));
    } else {
      Iterator children = plan.children().iterator();
      while (children.hasNext()) {
        inputs.add(Integer.valueOf(add((LogicalPlan) children.next(), isOwn)));
      }
    }
    ObjectNode node = json.addObject();
    node.put("name", plan.nodeName());
    ArrayNode numbers = node.putArray("inputs");
    for (Object input : inputs) {
      numbers.add((Integer) input);
    }
    addSparks(node, plan);
    node.set("output", ids(plan.output().iterator()));
    describe(node, plan);
    operators.add(isOwn ? plan : null);
    return operators.size() - 1;
  }

  /** What Spark itself expects, which stays where the estimator knows nothing. */
  private static void addSparks(ObjectNode node, LogicalPlan plan) {
    Statistics own = plan.stats();
    if (own.rowCount().isDefined()) {
      node.put("rows", ((Number) own.rowCount().get()).doubleValue());
    }
    node.put("is_exact", own.isRuntime());
  }

  private void describe(ObjectNode node, LogicalPlan plan) {
    String kind = "other";
    if (plan instanceof DataSourceV2ScanRelation) {
      kind = scan(node, (DataSourceV2ScanRelation) plan);
    } else if (plan instanceof Filter) {
      kind = "filter";
      node.set("conditions", Conditions.of(((Filter) plan).condition(), false));
      sample(node, (Filter) plan);
    } else if (plan instanceof Project) {
      kind = "project";
      node.set("columns", columns(((Project) plan).projectList().iterator(), new ArrayList()));
      remember(((Project) plan).projectList().iterator());
    } else if (plan instanceof Aggregate) {
      kind = "aggregate";
      aggregate(node, (Aggregate) plan);
    } else if (plan instanceof Join) {
      kind = "join";
      Join join = (Join) plan;
      // That one has no SQL.
      boolean isExistence = join.joinType() instanceof ExistenceJoin;
      node.put("type", isExistence ? "EXISTENCE" : join.joinType().sql());
      if (join.condition().isDefined()) {
        Expression condition = (Expression) join.condition().get();
        boolean isAnti = join.joinType() instanceof LeftAnti$;
        node.set("conditions", Conditions.of(condition, isAnti));
      }
    } else if (plan instanceof Union) {
      kind = "union";
      ArrayNode inputs = node.putArray("columns");
      Iterator children = plan.children().iterator();
      while (children.hasNext()) {
        inputs.add(ids(((LogicalPlan) children.next()).output().iterator()));
      }
      forget(plan.output().iterator());
    } else if (plan instanceof Expand) {
      kind = "expand";
      expand(node, (Expand) plan);
    } else if (plan instanceof GlobalLimit || plan instanceof LocalLimit) {
      Object limit =
          plan instanceof GlobalLimit
              ? ((GlobalLimit) plan).limitExpr()
              : ((LocalLimit) plan).limitExpr();
      if (limit instanceof Literal && ((Literal) limit).value() instanceof Integer) {
        kind = "limit";
        node.put("limit", (Integer) ((Literal) limit).value());
      }
    }
    node.put("kind", kind);
  }

  private String scan(ObjectNode node, DataSourceV2ScanRelation relation) {
    Explained known = ConnectorRelation.explained(relation.scan());
    if (!(known instanceof LanceScan)) {
      return "other";
    }
    LanceScan scan = (LanceScan) known;
    if (table == null) {
      table = scan.table;
    }
    node.set("scan", scan.request("scan"));
    ObjectNode names = node.putObject("names");
    Iterator output = relation.output().iterator();
    while (output.hasNext()) {
      Attribute attribute = (Attribute) output.next();
      names.put(id(attribute), attribute.name());
      sources.put(attribute.exprId(), new Source(scan, operators.size()));
    }
    return "scan";
  }

  /** Says which rows of a sample pass, where a filter is over a table's rows. */
  private static void sample(ObjectNode node, Filter filter) {
    LogicalPlan below = (LogicalPlan) filter.child();
    if (!(below instanceof DataSourceV2ScanRelation)) {
      return;
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) below;
    Explained known = ConnectorRelation.explained(relation.scan());
    if (!(known instanceof LanceScan)) {
      return;
    }
    ScanSample sample = ((LanceScan) known).sample;
    ObjectNode counted = LanceRelation.JSON.createObjectNode();
    ArrayNode others = counted.putArray("unsampled");
    List parts = Conditions.parts(filter.condition());
    Expression condition = null;
    for (int i = 0; i < parts.size(); i++) {
      Expression part = (Expression) parts.get(i);
      if (!ScanSample.evaluates(part)) {
        others.add(i);
      } else {
        condition = condition == null ? part : new And(condition, part);
      }
    }
    BitSet passing = condition == null ? null : sample.passing(condition);
    if (passing != null) {
      counted.put("rows", sample.size());
      counted.put("passing", Arrays.copyOf(passing.toByteArray(), (sample.size() + 7) / 8));
      node.set("sample", counted);
    }
  }

  /** Each output column as the column that it is in some of the groupings, and in which. */
  private static void expand(ObjectNode node, Expand plan) {
    node.put("times", plan.projections().size());
    ArrayNode columns = node.putArray("columns");
    for (int at = 0; at < plan.output().size(); at++) {
      ObjectNode column = columns.addObject().put("id", id((Attribute) plan.output().apply(at)));
      ArrayNode groupings = column.putArray("in");
      for (int grouping = 0; grouping < plan.projections().size(); grouping++) {
        Object value =
            ((scala.collection.immutable.Seq) plan.projections().apply(grouping)).apply(at);
        if (value instanceof Attribute) {
          column.put("of", id((Attribute) value));
          groupings.add(grouping);
        }
      }
    }
  }

  private void aggregate(ObjectNode node, Aggregate plan) {
    ArrayNode keys = node.putArray("keys");
    List grouping = new ArrayList();
    Iterator expressions = plan.groupingExpressions().iterator();
    while (expressions.hasNext()) {
      Expression key = (Expression) expressions.next();
      grouping.add(key);
      ObjectNode described = column(LanceRelation.JSON.createObjectNode(), key);
      describeValues(described, key);
      keys.add(described);
    }
    node.set("columns", columns(plan.aggregateExpressions().iterator(), grouping));
  }

  private void remember(Iterator expressions) {
    while (expressions.hasNext()) {
      Object named = expressions.next();
      if (named instanceof Alias) {
        computed.put(((Alias) named).exprId(), ((Alias) named).child());
      }
    }
  }

  /** A union has the numbers of its first input for the columns of all. */
  private void forget(Iterator attributes) {
    while (attributes.hasNext()) {
      Object number = ((Attribute) attributes.next()).exprId();
      sources.remove(number);
      computed.remove(number);
    }
  }

  /** Says which rows of a scan's sample have the same value of a key that is computed of them. */
  private void describeValues(ObjectNode column, Expression key) {
    Expression value = inlined(key);
    Source source = value instanceof Attribute ? null : sourceOf(value);
    byte[] codes = source == null ? null : source.scan.sample.coded(value);
    if (codes != null) {
      column.putObject("values").put("scan", source.index).put("codes", codes);
    }
  }

  /** Says of which size the values in a scan's sample are that are added up. */
  private void describeAdded(ObjectNode column, Expression addend) {
    Expression value = inlined(addend);
    Source source = sourceOf(value);
    Moments moments = source == null ? null : source.scan.sample.moments(value);
    if (moments != null) {
      moments.describe(column.putObject("added"));
    }
  }

  /** The one scan that has all columns of an expression which its sample can evaluate. */
  private Source sourceOf(Expression value) {
    if (value == null || !ScanSample.evaluates(value)) {
      return null;
    }
    Source source = null;
    Iterator references = value.references().iterator();
    while (references.hasNext()) {
      Source other = (Source) sources.get(((Attribute) references.next()).exprId());
      if (source != null && source.index != other.index) {
        return null;
      }
      source = other;
    }
    return source;
  }

  /** An expression of columns that scans read; null where it needs others. */
  private Expression inlined(Expression value) {
    Map columns = new HashMap();
    Iterator references = value.references().iterator();
    while (references.hasNext()) {
      Attribute column = (Attribute) references.next();
      Expression known = column;
      if (!sources.containsKey(column.exprId())) {
        Expression by = (Expression) computed.get(column.exprId());
        known = by == null ? null : inlined(by);
      }
      if (known == null) {
        return null;
      }
      columns.put(column.exprId(), known);
    }
    return Conditions.replaced(value, columns);
  }

  private static final class Source {
    final LanceScan scan;
    final int index;

    Source(LanceScan scan, int index) {
      this.scan = scan;
      this.index = index;
    }
  }

  private ArrayNode columns(Iterator expressions, List grouping) {
    ArrayNode columns = LanceRelation.JSON.createArrayNode();
    while (expressions.hasNext()) {
      NamedExpression named = (NamedExpression) expressions.next();
      ObjectNode column = columns.addObject();
      column.put("id", id(named.toAttribute()));
      Expression value =
          named instanceof Alias ? (Expression) ((Alias) named).child() : (Expression) named;
      column(column, value);
      // Spark adds up decimals of few digits as whole numbers.
      Expression inner =
          value instanceof MakeDecimal ? (Expression) ((MakeDecimal) value).child() : value;
      if (inner instanceof AggregateExpression) {
        AggregateExpression aggregate = (AggregateExpression) inner;
        column.put("is_count", counts(aggregate));
        if (sums(aggregate)) {
          Expression addend = (Expression) ((Sum) aggregate.aggregateFunction()).child();
          addend =
              addend instanceof UnscaledValue
                  ? (Expression) ((UnscaledValue) addend).child()
                  : addend;
          column.put("type", value.dataType().catalogString());
          if (addend instanceof Attribute) {
            column.put("sum_of", id((Attribute) addend));
          }
          if (conditioned.contains(named.exprId())) {
            describeAdded(column, addend);
          }
        }
        if (isExtreme(aggregate)) {
          // Both have one child.
          Object child = ((TreeNode) aggregate.aggregateFunction()).children().head();
          column.put("extreme_of", id((Attribute) child));
        }
      }
      for (int i = 0; i < grouping.size(); i++) {
        if (value.semanticEquals((Expression) grouping.get(i))) {
          column.put("key", i);
        }
      }
    }
    return columns;
  }

  private static boolean counts(AggregateExpression value) {
    return value.aggregateFunction() instanceof Count
        && !value.isDistinct()
        && value.filter().isEmpty();
  }

  private static boolean sums(AggregateExpression value) {
    return value.aggregateFunction() instanceof Sum
        && !value.isDistinct()
        && value.filter().isEmpty();
  }

  /** Whether it is the least or the greatest value of a column in each group. */
  private static boolean isExtreme(AggregateExpression value) {
    Object function = value.aggregateFunction();
    return (function instanceof Min || function instanceof Max)
        && ((TreeNode) function).children().head() instanceof Attribute
        && value.filter().isEmpty();
  }

  /** Where a value comes from: `of` is the column that it is, else `from` has all that it needs. */
  private static ObjectNode column(ObjectNode column, Expression value) {
    if (value instanceof Attribute) {
      return column.put("of", id((Attribute) value));
    }
    column.set("sources", ids(value.references().iterator()));
    return column;
  }

  static ArrayNode ids(Iterator attributes) {
    ArrayNode ids = LanceRelation.JSON.createArrayNode();
    while (attributes.hasNext()) {
      ids.add(id((Attribute) attributes.next()));
    }
    return ids;
  }

  static String id(Attribute attribute) {
    return Long.toString(attribute.exprId().id());
  }
}
