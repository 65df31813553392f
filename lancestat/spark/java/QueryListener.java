package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.SparkPlanInfo$;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;
import org.apache.spark.sql.util.QueryExecutionListener;
import org.apache.spark.util.AccumulatorContext$;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.collection.Iterator;

/**
 * Tells Python of the queries of a session: their plans, the rows that the optimizer expected of
 * operators, and those that they gave. Called on the thread of Spark's listeners, after the query.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class QueryListener implements QueryExecutionListener {
  private static final String ROWS = "number of output rows";
  private static final int MAX_FIELDS = 100;
  private static final Map LISTENERS = Collections.synchronizedMap(new WeakHashMap());

  private final Function recorder;

  private QueryListener(Function recorder) {
    this.recorder = recorder;
  }

  /** Gives a session one listener, in place of the one that it has. */
  static void register(SparkSession session, Function recorder) {
    unregister(session);
    QueryListener listener = new QueryListener(recorder);
    LISTENERS.put(session, listener);
    session.listenerManager().register(listener);
  }

  static void unregister(SparkSession session) {
    QueryListener listener = (QueryListener) LISTENERS.remove(session);
    if (listener != null) {
      session.listenerManager().unregister(listener);
    }
  }

  public void onSuccess(String name, QueryExecution execution, long nanoseconds) {
    try {
      recorder.apply(described(execution, true).toString());
    } catch (Throwable error) {
      Failure.survived("a query is not recorded", error);
    }
  }

  public void onFailure(String name, QueryExecution execution, Exception failure) {
    try {
      recorder.apply(described(execution, false).toString());
    } catch (Throwable error) {
      // One that could not be planned has no plan.
      Failure.requireSurvivable(error);
      LanceRelation.LOG.debug("a query that failed is not recorded: " + error);
    }
  }

  private static ObjectNode described(QueryExecution execution, boolean hasEnded) {
    ObjectNode query = LanceRelation.JSON.createObjectNode();
    query.put("at", System.currentTimeMillis());
    ObjectNode rows = query.putObject("rows");
    ArrayNode plans = query.putArray("plans");
    SparkPlan plan = execution.executedPlan();
    // What turns out to be empty is no longer in an adaptive plan at its end.
    if (plan instanceof AdaptiveSparkPlanExec) {
      SparkPlan first = ((AdaptiveSparkPlanExec) plan).initialPlan();
      plans.add(described(SparkPlanInfo$.MODULE$.fromSparkPlan(first), null));
    }
    plans.add(described(SparkPlanInfo$.MODULE$.fromSparkPlan(plan), hasEnded ? rows : null));
    ArrayNode expected = query.putArray("expected");
    Option link = execution.sparkPlan().logicalLink();
    if (link.isDefined()) {
      addExpected((LogicalPlan) link.get(), expected);
    }
    return query;
  }

  /** An operator as event logs have it; of its metrics, that of its rows, which go to `rows`. */
  private static ObjectNode described(SparkPlanInfo operator, ObjectNode rows) {
    ObjectNode node = LanceRelation.JSON.createObjectNode();
    node.put("nodeName", operator.nodeName()).put("simpleString", operator.simpleString());
    ArrayNode metrics = node.putArray("metrics");
    Iterator known = operator.metrics().iterator();
    while (known.hasNext()) {
      SQLMetricInfo metric = (SQLMetricInfo) known.next();
      if (ROWS.equals(metric.name())) {
        long id = metric.accumulatorId();
        metrics.addObject().put("name", ROWS).put("accumulatorId", id);
        Option counter = AccumulatorContext$.MODULE$.get(id);
        if (rows != null && counter.isDefined()) {
          rows.put(String.valueOf(id), ((Number) ((AccumulatorV2) counter.get()).value()).longValue());
        }
      }
    }
    ArrayNode children = node.putArray("children");
    Iterator below = operator.children().iterator();
    while (below.hasNext()) {
      children.add(described((SparkPlanInfo) below.next(), rows));
    }
    return node;
  }

  private static void addExpected(LogicalPlan plan, ArrayNode expected) {
    if (plan instanceof Join || plan instanceof Filter || plan instanceof Aggregate) {
      Option rows = plan.stats().rowCount();
      if (rows.isDefined()) {
        expected
            .addObject()
            .put("operator", plan.simpleString(MAX_FIELDS))
            .put("rows", ((Number) rows.get()).doubleValue());
      }
    }
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      addExpected((LogicalPlan) children.next(), expected);
    }
  }
}
