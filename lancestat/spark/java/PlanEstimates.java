package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils$;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.math.BigInt;
import scala.runtime.AbstractFunction1;

/**
 * Gives Spark's planner lancestat's estimates of whole plans.
 *
 * <p>It is a strategy that plans nothing. Spark asks it first, for the root of a plan, also when
 * adaptive execution plans again: it sets what Spark's own strategies then read.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class PlanEstimates extends SparkStrategy {
  // On operators that have an estimate of lancestat's: what it rests on, for people.
  private static final TreeNodeTag EVIDENCE = new TreeNodeTag("lancestat.evidence");
  // Sessions that are made of each other share them.
  private static final Set KNOWN =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  /** Gives a session, and all that are made of it, the estimates and the order of joins. */
  static void install(SparkSession session) {
    SparkSessionExtensions extensions = session.extensions();
    if (KNOWN.add(extensions)) {
      extensions.injectPlannerStrategy(new Make(false));
      extensions.injectPreCBORule(new Make(true));
    }
  }

  public Seq apply(LogicalPlan plan) {
    if (plan instanceof ReturnAnswer && PlanQuestion.isEnabled()) {
      try {
        set(plan);
      } catch (Throwable error) {
        Failure.survived("a query is planned with Spark's own estimates", error);
        plan.invalidateStatsCache();
        forget(plan);
      }
    }
    return (Seq) Nil$.MODULE$;
  }

  private static void set(LogicalPlan plan) throws Exception {
    PlanQuestion question = new PlanQuestion(plan);
    if (!question.isAnswerable()) {
      return;
    }
    JsonNode reply = question.ask(question.request("plan"));
    plan.invalidateStatsCache();
    for (int i = 0; i < question.operators.size(); i++) {
      LogicalPlan operator = (LogicalPlan) question.operators.get(i);
      JsonNode estimate = (JsonNode) reply.get("operators").get(i);
      if (operator != null) {
        operator.unsetTagValue(EVIDENCE);
      }
      if (operator != null && estimate.hasNonNull("rows")) {
        set(operator, estimate);
      }
    }
  }

  private static void forget(LogicalPlan plan) {
    plan.unsetTagValue(EVIDENCE);
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      forget((LogicalPlan) children.next());
    }
  }

  private static void set(LogicalPlan operator, JsonNode estimate) {
    // Spark's own, over the estimates of what the operator reads.
    Statistics own = operator.stats();
    if (own.isRuntime()) {
      return;
    }
    BigInt sized = rows(estimate.get("at_most").asDouble());
    BigInt bytes =
        EstimationUtils$.MODULE$.getOutputSize(operator.output(), sized, own.attributeStats());
    Statistics made =
        own.copy(
            bytes,
            scala.Option.apply(rows(estimate.get("rows").asDouble())),
            own.attributeStats(),
            false);
    operator.statsCache_$eq(scala.Option.apply(made));
    operator.setTagValue(EVIDENCE, estimate.get("evidence").asText());
  }

  private static BigInt rows(double rows) {
    return new BigInt(new java.math.BigDecimal(Math.max(1, Math.rint(rows))).toBigInteger());
  }

  /** Makes the strategy of a session, or the rule that gives it the order of joins. */
  static final class Make extends AbstractFunction1 {
    final boolean isRule;

    Make(boolean isRule) {
      this.isRule = isRule;
    }

    public Object apply(Object session) {
      return isRule ? (Object) JoinOrder.of((SparkSession) session) : (Object) new PlanEstimates();
    }
  }
}
