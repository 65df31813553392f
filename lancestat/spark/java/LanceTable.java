package lancestat.relation;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Set;
import java.util.UUID;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table pinned to one version; `handle` names it to the planner. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class LanceTable implements SupportsRead, TruncatableTable {
  // Py4J has buffers of 8,192 bytes.
  private static final int PART = 4_000;

  final String name;
  final String handle;
  final StructType schema;
  final long rows;
  final long size;
  // Of a table that a catalog has loaded; no other is loaded again.
  final String version;
  final String identity;
  // The catalog that has loaded it, if one of lancestat's has.
  String catalog;
  final SparkContext context;
  final Function planner;
  final ChainedPythonFunctions reader;
  final SampledColumns sampled = new SampledColumns();

  LanceTable(
      JsonNode declared, SparkContext context, Function planner, ChainedPythonFunctions reader) {
    this.name = declared.get("name").asText();
    this.handle = declared.get("handle").asText();
    this.schema = (StructType) DataType$.MODULE$.fromJson(declared.get("schema").toString());
    this.rows = declared.get("rows").asLong();
    this.size = declared.get("size").asLong();
    this.version = declared.hasNonNull("version") ? declared.get("version").asText() : null;
    this.identity = declared.hasNonNull("identity") ? declared.get("identity").asText() : handle;
    this.context = context;
    this.planner = planner;
    this.reader = reader;
    LanceRelation.CLEANER.register(this, new Farewell(planner, handle));
  }

  public String name() {
    return name;
  }

  // Every version of Spark derives the columns from it.
  @SuppressWarnings("deprecation")
  public StructType schema() {
    return schema;
  }

  /** Spark 4.1 and later load a table with a version again for every query of a DataFrame. */
  public String version() {
    return version;
  }

  public Set<TableCapability> capabilities() {
    return Collections.singleton(TableCapability.BATCH_READ);
  }

  /** Spark asks for a table to read before it truncates it. */
  public boolean truncateTable() {
    throw NamedCatalog.refusal(catalog);
  }

  /** A table as lancestat plans it, whoever reads it. */
  static LanceTable planned(Table table) {
    return table instanceof LanceTable
        ? (LanceTable) table
        : ((ConnectorRelation.ConnectorTable) table).planned;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new LanceScanBuilder(this, options);
  }

  public boolean equals(Object other) {
    return other instanceof LanceTable && identity.equals(((LanceTable) other).identity);
  }

  public int hashCode() {
    return identity.hashCode();
  }

  JsonNode ask(ObjectNode request) throws JsonProcessingException {
    String reply = whole(LanceRelation.JSON.writeValueAsString(request));
    return checked(LanceRelation.JSON.readTree(reply));
  }

  /**
   * Ask in parts that Py4J writes to its socket at once: TCP would hold the end of a longer text
   * back until the other side acknowledges its beginning, which it does after 40 ms.
   */
  private String whole(String text) {
    if (text.length() <= PART) {
      return (String) planner.apply(text);
    }
    String id = UUID.randomUUID().toString();
    int from = 0;
    while (text.length() - from > PART) {
      int to = from + PART - (Character.isHighSurrogate(text.charAt(from + PART - 1)) ? 1 : 0);
      planner.apply(id + '+' + text.substring(from, to));
      from = to;
    }
    return (String) planner.apply(id + '.' + text.substring(from));
  }

  private static JsonNode checked(JsonNode reply) {
    if (reply.hasNonNull("error")) {
      throw Failure.explained(new IllegalStateException(reply.get("error").asText()));
    }
    return reply;
  }
}

/** Tells the planner that no plan knows a table any more. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class Farewell implements Runnable {
  final Function planner;
  final String handle;

  Farewell(Function planner, String handle) {
    this.planner = planner;
    this.handle = handle;
  }

  public void run() {
    try {
      ObjectNode request = LanceRelation.JSON.createObjectNode().put("op", "forget");
      planner.apply(request.put("table", handle).toString());
    } catch (RuntimeException gone) {
      LanceRelation.LOG.debug("the planner is gone", gone);
    }
  }
}
