package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
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
final class LanceScan implements SupportsReportStatistics, Batch, Explained {
  final LanceTable table;
  final ScanQuestion question;
  final StructType columns;
  final Integer limit;
  final ScanSample sample = new ScanSample(this);
  Statistics statistics;
  String explanation;
  InputPartition[] partitions;
  String scan;

  LanceScan(LanceScanBuilder builder) {
    this.table = builder.table;
    this.question = builder.question;
    this.columns = builder.columns;
    this.limit = builder.limit;
  }

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    String text = question.description();
    return limit == null ? text : text + ", PushedLimit: " + limit;
  }

  public Batch toBatch() {
    return this;
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.SUPPORTED;
  }

  ObjectNode request(String op) {
    ObjectNode request = question.request(op);
    ArrayNode names = request.putArray("columns");
    for (String name : columns.fieldNames()) {
      names.add(name);
    }
    return request;
  }

  // A query never fails for want of an estimate.
  public synchronized Statistics estimateStatistics() {
    if (statistics == null) {
      try {
        JsonNode reply = table.ask(request("estimate"));
        statistics = new Estimate(reply, columns);
        explanation = reply.get("explanation").asText();
      } catch (Throwable error) {
        Failure.survived("no column statistics for " + table.name, error);
        statistics = new Estimate(table.rows, table.size);
      }
    }
    return statistics;
  }

  public String explanation() {
    estimateStatistics();
    return explanation;
  }

  /** Fails when the dataset is no longer the one that was observed. */
  void verify() {
    question.ask(request("verify"));
  }

  public synchronized InputPartition[] planInputPartitions() {
    if (partitions == null) {
      ObjectNode request = request("parts");
      request.put("limit", limit);
      request.put("cores", table.context.defaultParallelism());
      request.put("narrow", true);
      JsonNode reply = question.ask(request);
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
    return question.equals(that.question)
        && columns.equals(that.columns)
        && Objects.equals(limit, that.limit);
  }

  public int hashCode() {
    return Objects.hash(new Object[] {question, columns, limit});
  }
}
