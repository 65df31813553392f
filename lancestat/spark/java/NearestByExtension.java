package lancestat.relation;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.function.BiConsumer;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NearestByJoin;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What `spark.sql.extensions` names: joins by NEAREST BY over vectors run on lancestat's engine. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
public final class NearestByExtension extends AbstractFunction1 {
  // Sessions that are made of each other share them.
  private static final Set KNOWN =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  public Object apply(Object extensions) {
    SparkSessionExtensions injected = (SparkSessionExtensions) extensions;
    injected.injectPostHocResolutionRule(new Make(NearestByRule.class));
    injected.injectOptimizerRule(new Make(NearestByPushdown.class));
    injected.injectPlannerStrategy(new Make(NearestByStrategy.class));
    return BoxedUnit.UNIT;
  }

  /**
   * Connects the Python process.
   *
   * @param python see NearestByService
   */
  public void connect(BiConsumer python) {
    NearestByService.connect(python);
  }

  /** Whether a session has the rule. */
  public boolean isInstalled(SparkSession session) {
    Iterator rules = session.sessionState().analyzer().postHocResolutionRules().iterator();
    while (rules.hasNext()) {
      if (rules.next() instanceof NearestByRule) {
        return true;
      }
    }
    return false;
  }

  /**
   * Gives a running session the rule, and the sessions that are made of it later.
   *
   * @return why this cannot be done, null where it is
   */
  public String install(SparkSession session) throws IllegalAccessException {
    if (isInstalled(session)) {
      return null;
    }
    // The session has made its rules already, and Spark offers no way to add one; those of the
    // optimizer it asks for anew with each query.
    Analyzer analyzer = session.sessionState().analyzer();
    Field rules = field(analyzer.getClass(), "postHocResolutionRules");
    if (rules == null) {
      return "this Spark keeps its rules where lancestat cannot see them";
    }
    if (KNOWN.add(session.extensions())) {
      apply(session.extensions());
    }
    rules.setAccessible(true);
    rules.set(analyzer, Sequences.appended((Seq) rules.get(analyzer), new NearestByRule()));
    Seq strategies = session.experimental().extraStrategies();
    session
        .experimental()
        .extraStrategies_$eq(Sequences.appended(strategies, new NearestByStrategy()));
    return null;
  }

  /**
   * The joins by NEAREST BY that an analyzed query leaves to Spark: for each what it asks for, then
   * the reason.
   */
  public List kept(LogicalPlan analyzed) {
    List texts = new ArrayList();
    addKept(analyzed, texts);
    return texts;
  }

  private static void addKept(LogicalPlan plan, List texts) {
    if (plan instanceof NearestByJoin) {
      NearestByJoin join = (NearestByJoin) plan;
      String reason = NearestByRule.objection(join);
      texts.add(new NearestBySpec(join, join.rankingExpression().sql()).toString());
      texts.add(reason == null ? "the session had no rule of lancestat's for it" : reason);
    }
    Iterator below = plan.children().iterator();
    while (below.hasNext()) {
      addKept((LogicalPlan) below.next(), texts);
    }
    below = plan.subqueries().iterator();
    while (below.hasNext()) {
      addKept((LogicalPlan) below.next(), texts);
    }
  }

  private static Field field(Class type, String name) {
    for (Class at = type; at != null; at = at.getSuperclass()) {
      Field[] fields = at.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (fields[i].getName().equals(name)) {
          return fields[i];
        }
      }
    }
    return null;
  }

  /** Makes a rule or the strategy of a new session. */
  static final class Make extends AbstractFunction1 {
    final Class made;

    Make(Class made) {
      this.made = made;
    }

    public Object apply(Object session) {
      if (made == NearestByRule.class) {
        return new NearestByRule();
      }
      return made == NearestByPushdown.class
          ? (Object) new NearestByPushdown()
          : (Object) new NearestByStrategy();
    }
  }
}
