package lancestat.relation;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;

/** What the planner is asked about, once for each question. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class LanceScan implements SupportsReportStatistics, Batch {
  static final String CBO = "spark.sql.cbo.enabled";
  static final String CONF_PREFIX = "spark.lance.cbo.column.stats.";
  final LanceTable table;
  final StructType columns;
  final List pushed;
  final ArrayNode filters;
  final Integer limit;
  final Map options;
  final Map conf = new HashMap();
  Statistics statistics;
  InputPartition[] partitions;
  String scan;

  LanceScan(LanceScanBuilder builder) {
    this.table = builder.table;
    this.columns = builder.columns;
    this.pushed = builder.pushed;
    this.filters = builder.filters;
    this.limit = builder.limit;
    this.options = builder.options.asCaseSensitiveMap();
    String[] keys = new String[] {CBO, CONF_PREFIX + "enabled", CONF_PREFIX + "allow.stale"};
    for (int i = 0; i < keys.length; i++) {
      String value = SQLConf.get().getConfString(keys[i], null);
      if (value != null) {
        conf.put(keys[i], value);
      }
    }
  }

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    StringBuilder text = new StringBuilder("lance ").append(table.name);
    text.append(", PushedFilters: [").append(String.join(", ", (List<String>) pushed)).append("]");
    if (limit != null) {
      text.append(", PushedLimit: ").append(limit);
    }
    return text.toString();
  }

  public Batch toBatch() {
    return this;
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.SUPPORTED;
  }

  ObjectNode request(String op) {
    ObjectNode request = LanceRelation.JSON.createObjectNode();
    request.put("op", op);
    request.put("table", table.handle);
    ArrayNode names = request.putArray("columns");
    for (String name : columns.fieldNames()) {
      names.add(name);
    }
    request.set("filters", filters);
    request.set("conf", LanceRelation.JSON.valueToTree(conf));
    request.set("options", lowered());
    return request;
  }

  ObjectNode lowered() {
    ObjectNode node = LanceRelation.JSON.createObjectNode();
    for (Object option : options.entrySet()) {
      Map.Entry entry = (Map.Entry) option;
      String key = ((String) entry.getKey()).toLowerCase(java.util.Locale.ROOT);
      node.put(key, (String) entry.getValue());
    }
    return node;
  }

  // A query never fails for want of an estimate.
  public synchronized Statistics estimateStatistics() {
    if (statistics == null) {
      try {
        statistics = new Estimate(table.ask(request("estimate")), columns);
      } catch (Exception error) {
        LanceRelation.LOG.warn(
            "no column statistics for " + table.name + ": " + error.getMessage());
        statistics = new Estimate(table.rows, table.size);
      }
    }
    return statistics;
  }

  /** Fails when the dataset is no longer the one that was observed. */
  void verify() {
    try {
      table.ask(request("verify"));
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  public synchronized InputPartition[] planInputPartitions() {
    if (partitions == null) {
      ObjectNode request = request("parts");
      request.put("limit", limit);
      request.put("cores", table.context.defaultParallelism());
      request.put("narrow", true);
      JsonNode reply;
      try {
        reply = table.ask(request);
      } catch (JsonProcessingException error) {
        throw new IllegalStateException(error);
      }
      scan = reply.get("scan").asText();
      List parts = new ArrayList();
      for (JsonNode part : reply.get("parts")) {
        parts.add(new ReaderFactory.Part(part.asText()));
      }
      partitions = (InputPartition[]) parts.toArray(new InputPartition[0]);
    }
    return partitions;
  }

  public PartitionReaderFactory createReaderFactory() {
    planInputPartitions();
    return new ReaderFactory(
        scan, columns, table.reader, ArrowPythonRunner.getPythonRunnerConfMap(SQLConf.get()));
  }

  public boolean equals(Object other) {
    if (!(other instanceof LanceScan)) {
      return false;
    }
    LanceScan that = (LanceScan) other;
    return table.equals(that.table)
        && columns.equals(that.columns)
        && filters.equals(that.filters)
        && Objects.equals(limit, that.limit)
        && options.equals(that.options);
  }

  public int hashCode() {
    return Objects.hash(new Object[] {table, columns, filters, limit});
  }
}
