package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.immutable.Seq;

/**
 * Orders inner joins by lancestat's estimates.
 *
 * <p>What a scan reads is known only after the rules that extensions may add to Spark's optimizer. A
 * session's own rules come later, and after Spark's search for an order: this one is among them, where
 * a rule of an extension puts it each time that a query is optimized.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class JoinOrder extends Rule {
  static final int FEWEST = 3;
  private static final JoinOrder ORDER = new JoinOrder();

  /** Adds the order to the rules of a session, and returns a rule that changes nothing itself. */
  static Rule of(SparkSession session) {
    ExperimentalMethods own = session.experimental();
    synchronized (own) {
      if (!own.extraOptimizations().contains(ORDER)) {
        own.extraOptimizations_$eq(Sequences.appended(own.extraOptimizations(), ORDER));
      }
    }
    return new Unchanged();
  }

  public TreeNode apply(TreeNode plan) {
    if (!PlanQuestion.isEnabled() || !SQLConf.get().joinReorderEnabled()) {
      return plan;
    }
    try {
      return ordered((LogicalPlan) plan);
    } catch (Throwable error) {
      Failure.survived("joins keep Spark's order", error);
      return plan;
    }
  }

  private static LogicalPlan ordered(LogicalPlan plan) throws Exception {
    Map regions = new IdentityHashMap();
    List tops = new ArrayList();
    find(plan, regions, tops);
    if (tops.isEmpty()) {
      return plan;
    }
    PlanQuestion question = new PlanQuestion(plan);
    if (!question.isAnswerable()) {
      return plan;
    }
    Map numbers = new IdentityHashMap();
    for (int i = 0; i < question.operators.size(); i++) {
      numbers.put(question.operators.get(i), Integer.valueOf(i));
    }
    ObjectNode request = question.request("order");
    ArrayNode asked = request.putArray("regions");
    for (Object top : tops) {
      ((Region) regions.get(top)).describe(asked.addObject(), numbers);
    }
    JsonNode orders = question.ask(request).get("orders");
    for (int i = 0; i < tops.size(); i++) {
      ((Region) regions.get(tops.get(i))).order = (JsonNode) orders.get(i);
    }
    return rebuilt(plan, regions);
  }

  /** Finds the largest regions of inner joins; joins with hints keep their place. */
  private static void find(LogicalPlan plan, Map regions, List tops) {
    Region region = new Region();
    region.collect(plan);
    if (region.items.size() >= FEWEST) {
      regions.put(plan, region);
      tops.add(plan);
      for (Object item : region.items) {
        find((LogicalPlan) item, regions, tops);
      }
      return;
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      find((LogicalPlan) children.next(), regions, tops);
    }
  }

  private static LogicalPlan rebuilt(LogicalPlan plan, Map regions) {
    Region region = (Region) regions.get(plan);
    if (region != null && region.order.isArray()) {
      List items = new ArrayList();
      for (Object item : region.items) {
        items.add(rebuilt((LogicalPlan) item, regions));
      }
      return region.joined(items, plan);
    }
    List children = new ArrayList();
    boolean isSame = true;
    scala.collection.Iterator old = plan.children().iterator();
    while (old.hasNext()) {
      LogicalPlan child = (LogicalPlan) old.next();
      LogicalPlan made = rebuilt(child, regions);
      isSame = isSame && made == child;
      children.add(made);
    }
    return isSame ? plan : (LogicalPlan) plan.withNewChildren(Sequences.of(children));
  }

  /** A rule that returns the plan it is given. */
  static final class Unchanged extends Rule {
    public TreeNode apply(TreeNode plan) {
      return plan;
    }
  }

  /** Inner joins of some inputs under any conditions, and the order to join them in. */
  static final class Region {
    final List items = new ArrayList();
    final List conditions = new ArrayList();
    JsonNode order;

    void collect(LogicalPlan plan) {
      if (plan instanceof Join && isFree((Join) plan)) {
        Join join = (Join) plan;
        collect((LogicalPlan) join.left());
        collect((LogicalPlan) join.right());
        conditions.addAll(Conditions.parts((Expression) join.condition().get()));
      } else if (plan instanceof Project && isSelection((Project) plan)) {
        collect((LogicalPlan) ((Project) plan).child());
      } else {
        items.add(plan);
      }
    }

    private static boolean isFree(Join join) {
      return join.joinType() instanceof InnerLike
          && join.condition().isDefined()
          && join.hint().equals(JoinHint$.MODULE$.NONE())
          && ((Expression) join.condition().get()).deterministic();
    }

    private static boolean isSelection(Project project) {
      LogicalPlan below = (LogicalPlan) project.child();
      if (!(below instanceof Join) || !isFree((Join) below)) {
        return false;
      }
      scala.collection.Iterator columns = project.projectList().iterator();
      while (columns.hasNext()) {
        if (!(columns.next() instanceof Attribute)) {
          return false;
        }
      }
      return true;
    }

    void describe(ObjectNode node, Map numbers) {
      ArrayNode inputs = node.putArray("inputs");
      for (Object item : items) {
        inputs.add((Integer) numbers.get(item));
      }
      ArrayNode parts = node.putArray("conditions");
      for (Object condition : conditions) {
        parts.add(Conditions.json((Expression) condition));
      }
    }

    LogicalPlan joined(List inputs, LogicalPlan top) {
      List waiting = new ArrayList(conditions);
      LogicalPlan made = joined(order, inputs, waiting, top.outputSet());
      if (!waiting.isEmpty()) {
        throw new IllegalStateException("a condition of a join is about none of its inputs");
      }
      if (made.output().equals(top.output())) {
        return made;
      }
      LogicalPlan join = made instanceof Project ? (LogicalPlan) ((Project) made).child() : made;
      return new Project((Seq) top.output(), join);
    }

    private LogicalPlan joined(
        JsonNode tree, List inputs, List waiting, AttributeSet needed) {
      if (!tree.isArray()) {
        return (LogicalPlan) inputs.get(tree.asInt());
      }
      LogicalPlan left = joined((JsonNode) tree.get(0), inputs, waiting, needed);
      LogicalPlan right = joined((JsonNode) tree.get(1), inputs, waiting, needed);
      AttributeSet both = left.outputSet().$plus$plus(right.outputSet());
      Expression condition = null;
      Iterator remaining = waiting.iterator();
      while (remaining.hasNext()) {
        Expression part = (Expression) remaining.next();
        if (part.references().subsetOf(both)) {
          condition = condition == null ? part : new And(condition, part);
          remaining.remove();
        }
      }
      // A hint that asks for nothing keeps Spark's search away.
      JoinHint hint =
          new JoinHint(
              scala.Option.apply(new HintInfo(scala.Option.empty())), scala.Option.empty());
      Join join = new Join(left, right, Inner$.MODULE$, scala.Option.apply(condition), hint);
      return narrowed(join, waiting, needed);
    }

    /** A join without the columns that nothing above it needs. */
    private static LogicalPlan narrowed(Join join, List waiting, AttributeSet needed) {
      AttributeSet kept = needed;
      for (Object condition : waiting) {
        kept = kept.$plus$plus(((Expression) condition).references());
      }
      List columns = new ArrayList();
      scala.collection.Iterator output = join.output().iterator();
      while (output.hasNext()) {
        Attribute column = (Attribute) output.next();
        if (kept.contains(column)) {
          columns.add(column);
        }
      }
      return columns.size() == join.output().size()
          ? (LogicalPlan) join
          : new Project(Sequences.of(columns), join);
    }
  }
}
