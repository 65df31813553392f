package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes DSv2 relations of Lance tables. Their planning happens in the driver's Python process, and
 * their rows come from Python workers as Arrow batches.
 */
// Janino infers no type arguments, so types are raw and some casts are javac's to call redundant.
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
public final class LanceRelation {
  static final Logger LOG = LoggerFactory.getLogger("lancestat.relation");
  static final ObjectMapper JSON = new ObjectMapper();
  static final Cleaner CLEANER = Cleaner.create();

  /**
   * Relates tables of one session.
   *
   * @param planner answers requests, JSON to JSON, from any thread
   * @param readers what reads, referred to by a table's "reader": Python functions, or a table that
   *     another source has opened
   * @param tables a JSON array of objects: name, handle, schema (Spark's JSON), rows, size, reader,
   *     and optionally view (a temporary view's name) and options
   * @return a Dataset of each table that becomes no view, in their order
   */
  public List attach(SparkSession session, Function planner, List readers, String tables)
      throws IOException {
    List attached = new ArrayList();
    TemporaryViews views = new TemporaryViews(session);
    for (JsonNode declared : JSON.readTree(tables)) {
      Object reader = readers.get(declared.get("reader").asInt());
      Table table;
      if (reader instanceof Table) {
        LanceTable planned = new LanceTable(declared, session.sparkContext(), planner, null);
        table = ConnectorRelation.over((Table) reader, planned);
      } else {
        ChainedPythonFunctions functions = (ChainedPythonFunctions) reader;
        table = new LanceTable(declared, session.sparkContext(), planner, functions);
      }
      Map options = new HashMap();
      for (Object property : declared.get("options").properties()) {
        Map.Entry option = (Map.Entry) property;
        options.put(option.getKey(), ((JsonNode) option.getValue()).asText());
      }
      DataSourceV2Relation relation =
          SparkApi.relation(table, new CaseInsensitiveStringMap(options));
      if (declared.hasNonNull("view")) {
        views.replace(declared.get("view").asText(), relation);
      } else {
        attached.add(Dataset$.MODULE$.ofRows(session, relation));
      }
    }
    return attached;
  }

  /** A text as the parser of a session reads it under the configuration of that session. */
  public LogicalPlan parse(SparkSession session, String text) throws ParseException {
    scala.Option active = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    try {
      return session.sessionState().sqlParser().parsePlan(text);
    } finally {
      if (active.isDefined()) {
        SparkSession.setActiveSession((SparkSession) active.get());
      } else {
        SparkSession.clearActiveSession();
      }
    }
  }

  /** The rows of a parsed query. */
  public Dataset rows(SparkSession session, LogicalPlan parsed) {
    return Dataset$.MODULE$.ofRows(session, parsed);
  }

  /** What a parsed query is made of: see QueryFacts. */
  public List parsedFacts(LogicalPlan parsed) {
    return QueryFacts.parsed(parsed);
  }

  /** What a query is made of once its names are resolved: see QueryFacts. */
  public List analyzedFacts(Dataset rows) {
    return QueryFacts.analyzed(rows.queryExecution().analyzed());
  }

  /** The name of the planner's explanation of a scan, null where it has none. */
  public String explanation(Scan scan) {
    Explained explained = ConnectorRelation.explained(scan);
    return explained == null ? null : explained.explanation();
  }

  /** The data source of that name, or null where Spark's class path has none of its kind. */
  public TableProvider provider(SparkSession session, String name) {
    return ConnectorRelation.provider(session, name);
  }

  /** The schema that a source infers, or null where it finds no table. */
  public StructType schema(TableProvider source, CaseInsensitiveStringMap options) {
    return ConnectorRelation.schema(source, options);
  }

  /** The table that a source opens. */
  public Table table(TableProvider source, StructType schema, CaseInsensitiveStringMap options) {
    return ConnectorRelation.table(source, schema, options);
  }

  /** The columns of an open table, as a schema. */
  public StructType columns(Table table) {
    return ConnectorRelation.columns(table);
  }

  /** Whether Spark can read a table in batches. */
  public boolean isReadable(Table table) {
    return ConnectorRelation.isReadable(table);
  }
}
