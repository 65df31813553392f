package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.QueryExecution;
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
    PlanEstimates.install(session);
    List attached = new ArrayList();
    TemporaryViews views = new TemporaryViews(session);
    for (JsonNode declared : JSON.readTree(tables)) {
      Object reader = readers.get(declared.get("reader").asInt());
      Table table = table(session, planner, reader, declared);
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

  /** A table of which `reader` reads the rows: Python functions, or another source's table. */
  static Table table(SparkSession session, Function planner, Object reader, JsonNode declared) {
    SparkContext context = session.sparkContext();
    if (reader instanceof Table) {
      LanceTable planned = new LanceTable(declared, context, planner, null);
      return ConnectorRelation.over((Table) reader, planned);
    }
    return new LanceTable(declared, context, planner, (ChainedPythonFunctions) reader);
  }

  /**
   * Makes a catalog of a session answer with tables that have statistics: one of lancestat's own, or
   * that which the session has by the name.
   *
   * @param names takes a question, which is JSON, and adds the answer to a list: none, or JSON and
   *     what reads a table
   * @return whether the session has a catalog of that name
   */
  public boolean attachCatalog(
      SparkSession session, String name, BiConsumer names, Function planner) {
    PlanEstimates.install(session);
    return Catalogs.attach(session, name, new Catalogs.Names(session, planner, names));
  }

  /** Undoes attachCatalog; false where there is nothing to undo. */
  public boolean detachCatalog(SparkSession session, String name) {
    return Catalogs.detach(session, name);
  }

  /** Drops a temporary view that attach made; false where there is none. */
  public boolean detachView(SparkSession session, String name) {
    return new TemporaryViews(session).drop(name);
  }

  /** Tells `recorder` of the queries of a session, as JSON; null undoes it. */
  public void recordQueries(SparkSession session, Function recorder) {
    if (recorder == null) {
      QueryListener.unregister(session);
    } else {
      QueryListener.register(session, recorder);
    }
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

  /** Runs a query, and returns how many rows it has. */
  public long run(QueryExecution execution) {
    return QueryRun.of(execution);
  }

  /** The name of the planner's explanation of a scan, null where it has none. */
  public String explanation(Scan scan) {
    Explained explained = ConnectorRelation.explained(scan);
    return explained == null ? null : explained.explanation();
  }

  /** Whether a scan is one that the planner estimates. */
  public boolean isPlanned(Scan scan) {
    return ConnectorRelation.explained(scan) != null;
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
