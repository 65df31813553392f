package lancestat.relation;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What all questions about one scan have in common: the table, its settings and its filters. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class ScanQuestion {
  static final String[] KEYS =
      new String[] {
        "spark.sql.cbo.enabled",
        "spark.lance.cbo.column.stats.enabled",
        "spark.lance.cbo.column.stats.allow.stale",
        "spark.lancestat.aggregate.pushdown.enabled",
        PlanQuestion.ENABLED
      };
  final LanceTable table;
  final Map options;
  final Map conf = new HashMap();
  final List pushed = new ArrayList();
  final ArrayNode filters = LanceRelation.JSON.createArrayNode();
  // Those that the planner does not know, as text.
  final ArrayNode others = LanceRelation.JSON.createArrayNode();
  // The fragments that the filters leave, in runs of their ids, where every row of them passes, and
  // Spark does not apply the filters; else null.
  JsonNode covered;
  // The planner's decision on the aggregates that Spark asked for, if it did.
  JsonNode aggregates;

  ScanQuestion(LanceTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.options = options.asCaseSensitiveMap();
    for (int i = 0; i < KEYS.length; i++) {
      String value = SQLConf.get().getConfString(KEYS[i], null);
      if (value != null) {
        conf.put(KEYS[i], value);
      }
    }
  }

  void add(scala.collection.immutable.Seq given) {
    scala.collection.Iterator expressions = given.iterator();
    while (expressions.hasNext()) {
      add((Expression) expressions.next());
    }
  }

  // Each filter is one of the known or one of the others, whatever fails.
  void add(Expression filter) {
    try {
      ObjectNode node = Filters.translate(filter, table.schema);
      String text = node == null ? Filters.text(filter) : Filters.shown(filter);
      if (node != null) {
        filters.add(node);
        pushed.add(text);
      } else {
        others.add(text);
      }
    } catch (Throwable error) {
      Failure.survived("a filter of " + table.name + " stays", error);
      others.add("a condition that cannot be read");
    }
  }

  /** Whether the planner can prove that all rows of the fragments that are left pass. */
  boolean proveCovered() {
    if (others.size() == 0 && filters.size() > 0) {
      try {
        JsonNode answer = ask(request("covers")).get("covers");
        covered = answer.isNull() ? null : answer;
      } catch (Throwable error) {
        Failure.survived("filters of " + table.name + " stay", error);
      }
    }
    return covered != null;
  }

  ObjectNode request(String op) {
    ObjectNode request = LanceRelation.JSON.createObjectNode();
    request.put("op", op);
    request.put("table", table.handle);
    request.set("filters", filters);
    request.set("others", others);
    request.set("covered", covered);
    request.set("aggregation", aggregates);
    request.set("conf", LanceRelation.JSON.valueToTree(conf));
    ObjectNode lowered = request.putObject("options");
    for (Object option : options.entrySet()) {
      Map.Entry entry = (Map.Entry) option;
      String key = ((String) entry.getKey()).toLowerCase(Locale.ROOT);
      lowered.put(key, (String) entry.getValue());
    }
    return request;
  }

  JsonNode ask(ObjectNode request) {
    try {
      return table.ask(request);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  String description() {
    return "lance "
        + table.name
        + ", PushedFilters: ["
        + String.join(", ", (List<String>) pushed)
        + "]";
  }

  public boolean equals(Object other) {
    if (!(other instanceof ScanQuestion)) {
      return false;
    }
    ScanQuestion that = (ScanQuestion) other;
    return table.equals(that.table)
        && filters.equals(that.filters)
        && (covered == null) == (that.covered == null)
        && options.equals(that.options);
  }

  public int hashCode() {
    return table.hashCode() * 31 + filters.hashCode();
  }
}
