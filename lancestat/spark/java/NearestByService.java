package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.immutable.Seq;

/** The Python process that decides on joins and runs them. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class NearestByService {
  static final String MIN_RIGHT_ROWS = "spark.lancestat.nearestBy.minRightRows";
  private static final String FEWEST = "10000";
  // Takes a question, which is JSON, and a list: of what the question is about, to which it adds
  // the answer, which is JSON, and the rows of a result.
  private static volatile BiConsumer python;

  private NearestByService() {}

  static void connect(BiConsumer callback) {
    python = callback;
  }

  static boolean isConnected() {
    return python != null;
  }

  /** The strategy and the reason for it. No query fails for want of them. */
  static JsonNode decision(NearestByPlan node) {
    ObjectNode question = question("decide", node.spec);
    question.set("left_rows", rows(node.left));
    question.set("right_rows", rows(node.right));
    question.set("columns", schema(node.output()));
    try {
      return answer(question, new ArrayList());
    } catch (Exception error) {
      LanceRelation.LOG.warn("a join by NEAREST BY stays Spark's: " + error.getMessage());
      ObjectNode kept = LanceRelation.JSON.createObjectNode();
      return kept.put("strategy", "spark").put("why", "lancestat's Python process fails to decide");
    }
  }

  private static JsonNode rows(LogicalPlan side) {
    scala.Option known = side.stats().rowCount();
    scala.Option most = side.maxRows();
    long count = Long.MAX_VALUE;
    if (known.isDefined()) {
      count = ((scala.math.BigInt) known.get()).longValue();
    }
    if (most.isDefined()) {
      count = Math.min(count, ((Long) most.get()).longValue());
    }
    boolean isKnown = known.isDefined() || most.isDefined();
    return isKnown
        ? (JsonNode) LanceRelation.JSON.getNodeFactory().numberNode(count)
        : (JsonNode) LanceRelation.JSON.getNodeFactory().nullNode();
  }

  private static JsonNode schema(Seq attributes) {
    try {
      return LanceRelation.JSON.readTree(NearestByNodes.fields(attributes).json());
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The rows of the join, which Python has searched for when this returns. */
  static RDD search(NearestByExec join) {
    SparkSession session = (SparkSession) join.session();
    Dataset left = rows(session, join.left);
    Dataset right = rows(session, join.right);
    ObjectNode question = question("search", join.spec);
    question.put("left_vector", place(join.left, join.leftVector));
    question.put("right_vector", place(join.right, join.rightVector));
    List exchange = new ArrayList();
    exchange.add(session);
    exchange.add(left);
    exchange.add(right);
    JsonNode reply = answer(question, exchange);
    Dataset result;
    if (reply.hasNonNull("fallback")) {
      LanceRelation.LOG.warn("Spark computes a join by NEAREST BY: " + reply.get("fallback").asText());
      LogicalPlan plan =
          join.spec.lowered(
              left.logicalPlan(),
              right.logicalPlan(),
              attribute(left, question.get("left_vector").asInt()),
              attribute(right, question.get("right_vector").asInt()));
      result = Dataset$.MODULE$.ofRows(session, plan);
    } else {
      result = (Dataset) exchange.get(4);
    }
    RDD rows = result.queryExecution().toRdd();
    if (reply.hasNonNull("result")) {
      LanceRelation.CLEANER.register(rows, new ResultFarewell(reply.get("result").asText()));
    }
    return rows;
  }

  private static Dataset rows(SparkSession session, SparkPlan side) {
    return session.internalCreateDataFrame(
        side.execute(), NearestByNodes.fields(side.output()), false);
  }

  private static int place(SparkPlan side, Object vector) {
    for (int i = 0; i < side.output().size(); i++) {
      Attribute attribute = (Attribute) side.output().apply(i);
      if (attribute.exprId().equals(((NamedExpression) vector).exprId())) {
        return i;
      }
    }
    throw new IllegalStateException("the plan of a side has lost its vectors");
  }

  private static Attribute attribute(Dataset rows, int place) {
    return (Attribute) rows.logicalPlan().output().apply(place);
  }

  private static ObjectNode question(String op, NearestBySpec spec) {
    ObjectNode question = LanceRelation.JSON.createObjectNode();
    question.put("op", op);
    question.put("function", spec.function);
    question.put("k", spec.count);
    question.put("is_approximate", spec.isApproximate);
    question.put("is_outer", spec.isOuter());
    question.put("min_right_rows", SQLConf.get().getConfString(MIN_RIGHT_ROWS, FEWEST));
    return question;
  }

  /** Asks, and returns the answer, which comes after what the list holds. */
  static JsonNode answer(ObjectNode question, List exchange) {
    int given = exchange.size();
    python.accept(question.toString(), exchange);
    try {
      JsonNode reply = LanceRelation.JSON.readTree((String) exchange.get(given));
      if (reply.hasNonNull("error")) {
        throw Failure.explained(new IllegalStateException(reply.get("error").asText()));
      }
      return reply;
    } catch (IOException unreadable) {
      throw new IllegalStateException(unreadable);
    }
  }

  /** Tells Python that nobody can read a result any more. */
  static final class ResultFarewell implements Runnable {
    final String name;

    ResultFarewell(String name) {
      this.name = name;
    }

    public void run() {
      try {
        ObjectNode question = LanceRelation.JSON.createObjectNode().put("op", "forget");
        answer(question.put("result", name), new ArrayList());
      } catch (RuntimeException gone) {
        LanceRelation.LOG.debug("the Python process is gone", gone);
      }
    }
  }
}
