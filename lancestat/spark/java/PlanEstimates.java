package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils$;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
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
  // The answer about an operator, with what it rests on, for people.
  private static final TreeNodeTag ANSWER = new TreeNodeTag("lancestat.answer");
  // A stage with so many times the expected rows, or a part of them, changes what is above it.
  private static final double SURPRISE = 2;
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
    if (plan instanceof ReturnAnswer && PlanQuestion.isEnabled() && isOpen(plan)) {
      try {
        if (!setAgain(plan)) {
          set(plan);
        }
      } catch (Throwable error) {
        Failure.survived("a query is planned with Spark's own estimates", error);
        plan.invalidateStatsCache();
        forget(plan);
      }
    }
    return (Seq) Nil$.MODULE$;
  }

  /**
   * Whether estimates can change a plan: not once adaptive execution has stages of it, if the sides
   * of all joins that are left are stages, whose rows are counted, or one of them is broadcast.
   */
  private static boolean isOpen(LogicalPlan plan) {
    return !hasStage(plan) || hasOpenJoin(plan);
  }

  private static boolean hasStage(LogicalPlan plan) {
    Iterator leaves = plan.collectLeaves().iterator();
    while (leaves.hasNext()) {
      if (leaves.next() instanceof LogicalQueryStage) {
        return true;
      }
    }
    return false;
  }

  private static boolean hasOpenJoin(LogicalPlan plan) {
    if (plan instanceof Join) {
      Object left = ((Join) plan).left();
      Object right = ((Join) plan).right();
      boolean areStages = left instanceof LogicalQueryStage && right instanceof LogicalQueryStage;
      if (!areStages && !isBroadcast(left) && !isBroadcast(right)) {
        return true;
      }
    }
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      if (hasOpenJoin((LogicalPlan) children.next())) {
        return true;
      }
    }
    return false;
  }

  private static boolean isBroadcast(Object side) {
    return side instanceof LogicalQueryStage
        && ((LogicalQueryStage) side).physicalPlan() instanceof BroadcastQueryStageExec;
  }

  /**
   * Sets the estimates of the last time, which adaptive execution has dropped; false where they no
   * longer hold: an operator is new, or a stage has other rows than expected.
   */
  private static boolean setAgain(LogicalPlan plan) {
    List known = new ArrayList();
    if (!hasStage(plan) || !addKnown(plan, known)) {
      return false;
    }
    plan.invalidateStatsCache();
    for (Object operator : known) {
      set((LogicalPlan) operator, answer((LogicalPlan) operator));
    }
    return true;
  }

  /** Adds operators, each after those that it reads, as long as all have an answer that holds. */
  private static boolean addKnown(LogicalPlan plan, List known) {
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      if (!addKnown((LogicalPlan) children.next(), known)) {
        return false;
      }
    }
    JsonNode answer = answer(plan);
    if (answer == null) {
      return plan instanceof ReturnAnswer;
    }
    Statistics stage = plan instanceof LogicalQueryStage ? plan.stats() : null;
    if (stage != null && stage.isRuntime() && stage.rowCount().isDefined()) {
      double counted = Math.max(1, ((Number) stage.rowCount().get()).doubleValue());
      double expected = Math.max(1, answer.get("rows").asDouble());
      return counted <= SURPRISE * expected && expected <= SURPRISE * counted;
    }
    return known.add(plan);
  }

  /** The last answer about an operator, or about what a stage runs; null without one. */
  private static JsonNode answer(LogicalPlan plan) {
    scala.Option answer = plan.getTagValue(ANSWER);
    if (answer.isEmpty() && plan instanceof LogicalQueryStage) {
      answer = ((LogicalQueryStage) plan).logicalPlan().getTagValue(ANSWER);
    }
    return answer.isEmpty() ? null : (JsonNode) answer.get();
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
        operator.unsetTagValue(ANSWER);
      }
      if (operator != null && estimate.hasNonNull("rows")) {
        set(operator, estimate);
      }
    }
  }

  private static void forget(LogicalPlan plan) {
    plan.unsetTagValue(ANSWER);
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      forget((LogicalPlan) children.next());
    }
  }

  private static void set(LogicalPlan operator, JsonNode estimate) {
    operator.setTagValue(ANSWER, estimate);
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
