package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

/** Plans lancestat's node: by its own search, or by Spark's plan where the cost model prefers it. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class NearestByStrategy extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    List planned = new ArrayList();
    if (plan instanceof NearestByPlan) {
      NearestByPlan node = (NearestByPlan) plan;
      JsonNode decision = NearestByService.decision(node);
      String text = decision.get("strategy").asText() + ": " + decision.get("why").asText();
      if (decision.get("strategy").asText().equals("spark")) {
        planned.add(new NearestByKeptExec(new PlanLater(node.lowered()), node.spec, text));
      } else {
        planned.add(
            new NearestByExec(
                new PlanLater(node.left),
                new PlanLater(node.right),
                node.spec,
                node.leftVector,
                node.rightVector,
                text));
      }
    }
    return Sequences.of(planned);
  }
}
