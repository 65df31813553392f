package lancestat.relation;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.catalyst.CatalystTypeConverters$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.CatalogColumnStat$;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util$;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.FieldReference$;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.colstats.Histogram;
import org.apache.spark.sql.connector.read.colstats.HistogramBin;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataType$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A Lance table as a DSv2 relation whose planning happens in the driver's Python process and whose
 * rows come from Python workers as Arrow batches.
 */
// Janino infers no type arguments, so types are raw and some casts are javac's to call redundant.
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
public final class LanceRelation {
  static final Logger LOG = LoggerFactory.getLogger("lancestat.relation");
  static final ObjectMapper JSON = new ObjectMapper();
  static final Cleaner CLEANER = Cleaner.create();
  static final String CONF_PREFIX = "spark.lance.cbo.column.stats.";
  static final int MAP_ARROW_ITER = 207;

  /**
   * Relates tables of one session.
   *
   * @param planner answers requests, JSON to JSON, from any thread
   * @param readers what reads, referred to by a table's "reader": Python functions, or a table that
   *     another source has opened
   * @param tables a JSON array of objects: name, handle, schema (Spark's JSON), rows, size, reader,
   *     and optionally view (a temporary view's name) and options
   * @return one Dataset for each table, in their order
   */
  public List attach(SparkSession session, Function planner, List readers, String tables)
      throws IOException {
    List attached = new ArrayList();
    for (JsonNode declared : JSON.readTree(tables)) {
      Object reader = readers.get(declared.get("reader").asInt());
      Table table;
      if (reader instanceof Table) {
        LanceTable told = new LanceTable(declared, session.sparkContext(), planner, null);
        table = ConnectorRelation.over((Table) reader, told);
      } else {
        ChainedPythonFunctions functions = (ChainedPythonFunctions) reader;
        table = new LanceTable(declared, session.sparkContext(), planner, functions);
      }
      Map options = new HashMap();
      for (Object each : declared.get("options").properties()) {
        Map.Entry option = (Map.Entry) each;
        options.put(option.getKey(), ((JsonNode) option.getValue()).asText());
      }
      Dataset rows =
          Dataset$.MODULE$.ofRows(
              session,
              DataSourceV2Relation$.MODULE$.create(
                  table,
                  scala.Option.empty(),
                  scala.Option.empty(),
                  new CaseInsensitiveStringMap(options),
                  scala.Option.empty()));
      if (declared.hasNonNull("view")) {
        rows.createOrReplaceTempView("`" + declared.get("view").asText().replace("`", "``") + "`");
      }
      attached.add(rows);
    }
    return attached;
  }

  /** The data source of that name, or null where Spark's class path has none of its kind. */
  public TableProvider provider(SparkSession session, String name) {
    return ConnectorRelation.provider(session, name);
  }

  /** A table pinned to one version; `handle` names it to the planner. */
  static final class LanceTable implements Table, SupportsRead {
    final String name;
    final String handle;
    final StructType schema;
    final long rows;
    final long size;
    final SparkContext context;
    final Function planner;
    final ChainedPythonFunctions reader;

    LanceTable(
        JsonNode declared, SparkContext context, Function planner, ChainedPythonFunctions reader) {
      this.name = declared.get("name").asText();
      this.handle = declared.get("handle").asText();
      this.schema = (StructType) DataType$.MODULE$.fromJson(declared.get("schema").toString());
      this.rows = declared.get("rows").asLong();
      this.size = declared.get("size").asLong();
      this.context = context;
      this.planner = planner;
      this.reader = reader;
      CLEANER.register(this, new Farewell(planner, handle));
    }

    public String name() {
      return name;
    }

    public Column[] columns() {
      return CatalogV2Util$.MODULE$.structTypeToV2Columns(schema, false);
    }

    public Set<TableCapability> capabilities() {
      return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new LanceScanBuilder(this, options);
    }

    public boolean equals(Object other) {
      return other instanceof LanceTable
          && handle.equals(((LanceTable) other).handle)
          && planner == ((LanceTable) other).planner;
    }

    public int hashCode() {
      return handle.hashCode();
    }

    JsonNode ask(ObjectNode request) throws JsonProcessingException {
      JsonNode reply = JSON.readTree((String) planner.apply(JSON.writeValueAsString(request)));
      if (reply.hasNonNull("error")) {
        throw BatchReader.explained(new IllegalStateException(reply.get("error").asText()));
      }
      return reply;
    }
  }

  /** Tells the planner that no plan knows a table any more. */
  static final class Farewell implements Runnable {
    final Function planner;
    final String handle;

    Farewell(Function planner, String handle) {
      this.planner = planner;
      this.handle = handle;
    }

    public void run() {
      try {
        ObjectNode request = JSON.createObjectNode().put("op", "forget");
        planner.apply(request.put("table", handle).toString());
      } catch (RuntimeException gone) {
        LOG.debug("the planner is gone", gone);
      }
    }
  }

  static final class LanceScanBuilder
      implements SupportsPushDownRequiredColumns, SupportsPushDownFilters, SupportsPushDownLimit {
    final LanceTable table;
    final CaseInsensitiveStringMap options;
    StructType columns;
    Filter[] pushed = new Filter[0];
    ArrayNode filters = JSON.createArrayNode();
    Integer limit;

    LanceScanBuilder(LanceTable table, CaseInsensitiveStringMap options) {
      this.table = table;
      this.options = options;
      this.columns = table.schema;
    }

    // Whole columns, even where Spark needs only some fields of a struct.
    public void pruneColumns(StructType required) {
      List fields = new ArrayList();
      for (StructField field : required.fields()) {
        fields.add(table.schema.fields()[table.schema.fieldIndex(field.name())]);
      }
      columns = new StructType((StructField[]) fields.toArray(new StructField[0]));
    }

    // Spark gets all of them back: it estimates what they leave, and applies them once more.
    public Filter[] pushFilters(Filter[] given) {
      List translated = new ArrayList();
      for (Filter filter : given) {
        ObjectNode node = Filters.translate(filter, table.schema);
        if (node != null) {
          filters.add(node);
          translated.add(filter);
        }
      }
      pushed = (Filter[]) translated.toArray(new Filter[0]);
      return given;
    }

    public Filter[] pushedFilters() {
      return pushed;
    }

    public boolean pushLimit(int rows) {
      limit = Integer.valueOf(rows);
      return true;
    }

    // Every task stops there, and Spark stops after all of them.
    public boolean isPartiallyPushed() {
      return true;
    }

    public Scan build() {
      return new LanceScan(this);
    }
  }

  /** What the planner is asked about, once for each question. */
  static final class LanceScan implements SupportsReportStatistics, Batch {
    final LanceTable table;
    final StructType columns;
    final Filter[] pushed;
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
      String[] keys = new String[] {CONF_PREFIX + "enabled", CONF_PREFIX + "allow.stale"};
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
      text.append(", PushedFilters: [");
      for (int i = 0; i < pushed.length; i++) {
        text.append(i == 0 ? "" : ", ").append(pushed[i]);
      }
      text.append("]");
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
      ObjectNode request = JSON.createObjectNode();
      request.put("op", op);
      request.put("table", table.handle);
      ArrayNode names = request.putArray("columns");
      for (String name : columns.fieldNames()) {
        names.add(name);
      }
      request.set("filters", filters);
      request.set("conf", JSON.valueToTree(conf));
      request.set("options", lowered());
      return request;
    }

    ObjectNode lowered() {
      ObjectNode node = JSON.createObjectNode();
      for (Object each : options.entrySet()) {
        Map.Entry entry = (Map.Entry) each;
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
          LOG.warn("no column statistics for " + table.name + ": " + error.getMessage());
          statistics = new Estimate(table.rows, table.size);
        }
      }
      return statistics;
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
          parts.add(new Part(part.asText()));
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

  /** Filters in the planner's JSON. */
  static final class Filters {
    /** Null for what the planner does not know; such a filter stays with Spark alone. */
    static ObjectNode translate(Filter filter, StructType schema) {
      if (filter instanceof And) {
        And and = (And) filter;
        return pair("and", translate(and.left(), schema), translate(and.right(), schema));
      }
      if (filter instanceof Or) {
        Or or = (Or) filter;
        return pair("or", translate(or.left(), schema), translate(or.right(), schema));
      }
      if (filter instanceof Not) {
        ObjectNode child = translate(((Not) filter).child(), schema);
        if (child == null) {
          return null;
        }
        ObjectNode node = JSON.createObjectNode().put("op", "not");
        node.set("child", child);
        return node;
      }
      String[] references = filter.references();
      if (references.length != 1) {
        return null;
      }
      String[] path = Expressions.column(references[0]).fieldNames();
      if (path.length != 1 || schema.getFieldIndex(path[0]).isEmpty()) {
        return null;
      }
      return leaf(filter, schema.apply(path[0]));
    }

    static ObjectNode pair(String op, ObjectNode left, ObjectNode right) {
      if (left == null || right == null) {
        return null;
      }
      ObjectNode node = JSON.createObjectNode().put("op", op);
      node.set("left", left);
      node.set("right", right);
      return node;
    }

    static ObjectNode leaf(Filter filter, StructField field) {
      if (filter instanceof EqualTo) {
        return comparison("=", ((EqualTo) filter).value(), field);
      }
      if (filter instanceof EqualNullSafe) {
        return comparison("<=>", ((EqualNullSafe) filter).value(), field);
      }
      if (filter instanceof LessThan) {
        return comparison("<", ((LessThan) filter).value(), field);
      }
      if (filter instanceof LessThanOrEqual) {
        return comparison("<=", ((LessThanOrEqual) filter).value(), field);
      }
      if (filter instanceof GreaterThan) {
        return comparison(">", ((GreaterThan) filter).value(), field);
      }
      if (filter instanceof GreaterThanOrEqual) {
        return comparison(">=", ((GreaterThanOrEqual) filter).value(), field);
      }
      if (filter instanceof IsNull) {
        return about("isnull", field);
      }
      if (filter instanceof IsNotNull) {
        return about("isnotnull", field);
      }
      if (filter instanceof StringStartsWith) {
        return about("startswith", field).put("value", ((StringStartsWith) filter).value());
      }
      if (filter instanceof In && isKnown(field.dataType())) {
        ObjectNode node = about("in", field).put("type", field.dataType().catalogString());
        ArrayNode values = node.putArray("values");
        for (Object value : ((In) filter).values()) {
          values.add(text(value, field.dataType()));
        }
        return node;
      }
      return null;
    }

    static ObjectNode about(String op, StructField field) {
      return JSON.createObjectNode().put("op", op).put("column", field.name());
    }

    static ObjectNode comparison(String op, Object value, StructField field) {
      if (!isKnown(field.dataType())) {
        return null;
      }
      ObjectNode node = about(op, field).put("type", field.dataType().catalogString());
      return node.put("value", text(value, field.dataType()));
    }

    static boolean isKnown(DataType type) {
      return type instanceof DecimalType
          || Arrays.asList(
                  new Object[] {
                    DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType,
                    DataTypes.IntegerType, DataTypes.LongType, DataTypes.FloatType,
                    DataTypes.DoubleType, DataTypes.StringType, DataTypes.BinaryType,
                    DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType
                  })
              .contains(type);
    }

    // Through Spark's internal form, which is the same whichever Java classes it hands out.
    static String text(Object value, DataType type) {
      if (value == null) {
        return null;
      }
      Object internal =
          CatalystTypeConverters$.MODULE$.createToCatalystConverter(type).apply(value);
      if (internal instanceof byte[]) {
        StringBuilder hex = new StringBuilder();
        for (byte each : (byte[]) internal) {
          hex.append(String.format("%02x", new Object[] {Byte.valueOf(each)}));
        }
        return hex.toString();
      }
      if (internal instanceof Decimal) {
        return ((Decimal) internal).toJavaBigDecimal().toPlainString();
      }
      return internal.toString();
    }
  }

  /** The planner's estimate in Spark's form. */
  static final class Estimate implements Statistics {
    final long rows;
    final long size;
    final Map columns = new HashMap();

    Estimate(long rows, long size) {
      this.rows = rows;
      this.size = size;
    }

    Estimate(JsonNode reply, StructType schema) {
      this(reply.get("rows").asLong(), reply.get("size").asLong());
      for (Object each : reply.get("columns").properties()) {
        Map.Entry told = (Map.Entry) each;
        String name = (String) told.getKey();
        columns.put(
            FieldReference$.MODULE$.column(name),
            new ColumnEstimate((JsonNode) told.getValue(), name, schema.apply(name).dataType()));
      }
    }

    public OptionalLong sizeInBytes() {
      return OptionalLong.of(size);
    }

    public OptionalLong numRows() {
      return OptionalLong.of(rows);
    }

    public Map<NamedReference, ColumnStatistics> columnStats() {
      return columns;
    }
  }

  static final class ColumnEstimate implements ColumnStatistics {
    final JsonNode told;
    final Object min;
    final Object max;

    ColumnEstimate(JsonNode told, String name, DataType type) {
      this.told = told;
      this.min = bound("min", name, type);
      this.max = bound("max", name, type);
    }

    Object bound(String key, String name, DataType type) {
      if (!told.hasNonNull(key)) {
        return null;
      }
      return CatalogColumnStat$.MODULE$.fromExternalString(told.get(key).asText(), name, type, 2);
    }

    OptionalLong count(String key) {
      if (!told.hasNonNull(key)) {
        return OptionalLong.empty();
      }
      return OptionalLong.of(told.get(key).asLong());
    }

    public Optional<Object> min() {
      return Optional.ofNullable(min);
    }

    public Optional<Object> max() {
      return Optional.ofNullable(max);
    }

    public OptionalLong distinctCount() {
      return count("distinct");
    }

    public OptionalLong nullCount() {
      return count("nulls");
    }

    public OptionalLong avgLen() {
      return count("avgLen");
    }

    public OptionalLong maxLen() {
      return count("maxLen");
    }

    public Optional<Histogram> histogram() {
      if (!told.hasNonNull("histogram")) {
        return Optional.empty();
      }
      Histogram histogram = new EquiHeight(told.get("histogram"));
      return Optional.of(histogram);
    }
  }

  static final class EquiHeight implements Histogram {
    final JsonNode told;

    EquiHeight(JsonNode told) {
      this.told = told;
    }

    public double height() {
      return told.get("height").asDouble();
    }

    public HistogramBin[] bins() {
      List bins = new ArrayList();
      for (JsonNode bin : told.get("bins")) {
        bins.add(new Bin(bin));
      }
      return (HistogramBin[]) bins.toArray(new HistogramBin[0]);
    }
  }

  static final class Bin implements HistogramBin {
    final JsonNode told;

    Bin(JsonNode told) {
      this.told = told;
    }

    public double lo() {
      return ((JsonNode) told.get(0)).asDouble();
    }

    public double hi() {
      return ((JsonNode) told.get(1)).asDouble();
    }

    public long ndv() {
      return ((JsonNode) told.get(2)).asLong();
    }
  }

  static final class Part implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String text;

    Part(String text) {
      this.text = text;
    }
  }

  /** Columns only: every partition is read as Arrow batches. */
  static final class ReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;
    final String scan;
    final StructType columns;
    final ChainedPythonFunctions reader;
    final scala.collection.immutable.Map conf;

    ReaderFactory(
        String scan,
        StructType columns,
        ChainedPythonFunctions reader,
        scala.collection.immutable.Map conf) {
      this.scan = scan;
      this.columns = columns;
      this.reader = reader;
      this.conf = conf;
    }

    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("Lance is read in columns");
    }

    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new BatchReader(this, (Part) partition);
    }
  }

  /** Runs the Python function over one part and hands out what it yields. */
  static final class BatchReader implements PartitionReader<ColumnarBatch> {
    static final String MARK = "lancestat-error:";
    static final String[] METRICS =
        new String[] {
          "pythonDataSent", "pythonDataReceived", "pythonProcessingTime", "pythonBootTime",
          "pythonInitTime", "pythonTotalTime", "pythonNumRowsReceived"
        };
    final StructType columns;
    final scala.collection.Iterator batches;
    ArrowColumnVector source;
    ColumnVector[] vectors;
    ColumnarBatch current;

    BatchReader(ReaderFactory factory, Part part) {
      this.columns = factory.columns;
      byte[] text = (factory.scan + "\n" + part.text).getBytes(StandardCharsets.UTF_8);
      Object row = struct(struct(text));
      StructType inner = new StructType().add("value", DataTypes.BinaryType);
      scala.collection.immutable.Map metrics =
          (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
      for (int i = 0; i < METRICS.length; i++) {
        metrics =
            (scala.collection.immutable.Map)
                metrics.updated(METRICS[i], new SQLMetric("size", 0L));
      }
      ArrowPythonRunner runner =
          new ArrowPythonRunner(
              scala.collection.immutable.List$.MODULE$
                  .empty()
                  .$colon$colon(new scala.Tuple2(factory.reader, Long.valueOf(0L))),
              MAP_ARROW_ITER,
              new int[][] {{0}},
              new StructType().add("struct", inner),
              "UTC",
              false,
              factory.conf,
              metrics,
              scala.Option.empty(),
              scala.Option.empty());
      TaskContext context = TaskContext.get();
      this.batches = runner.compute(single(single(row)), context.partitionId(), context);
    }

    static InternalRow struct(Object value) {
      return new GenericInternalRow(new Object[] {value});
    }

    static scala.collection.Iterator single(Object value) {
      return scala.collection.Iterator$.MODULE$.single(value);
    }

    public boolean next() throws IOException {
      try {
        if (!batches.hasNext()) {
          return false;
        }
        present((ColumnarBatch) batches.next());
        return true;
      } catch (RuntimeException error) {
        throw explained(error);
      }
    }

    void present(ColumnarBatch batch) {
      ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
      if (columns.size() == 0) {
        current = new ColumnarBatch(new ColumnVector[0]);
        current.setNumRows((int) struct.getChild(0).getLong(0));
        return;
      }
      if (struct != source) {
        source = struct;
        vectors = new ColumnVector[columns.size()];
        for (int i = 0; i < vectors.length; i++) {
          ColumnVector child = struct.getChild(i);
          DataType type = columns.apply(i).dataType();
          boolean isNarrow = type instanceof DecimalType && child.dataType().equals(DataTypes.LongType);
          vectors[i] = isNarrow ? new UnscaledDecimals(child, type) : child;
        }
      }
      current = new ColumnarBatch(vectors);
      current.setNumRows(batch.numRows());
    }

    public ColumnarBatch get() {
      return current;
    }

    // The runner ends with its task.
    public void close() {}

    static RuntimeException explained(RuntimeException error) {
      String text = String.valueOf(error.getMessage());
      int mark = text.indexOf(MARK);
      if (mark < 0) {
        return error;
      }
      try {
        JsonNode told = JSON.readTree(text.substring(mark + MARK.length()));
        String hint = told.hasNonNull("hint") ? "\n      hint: " + told.get("hint").asText() : "";
        return new IllegalStateException(
            told.get("code").asText() + "  " + told.get("message").asText() + hint,
            new RuntimeException(MARK + told));
      } catch (IOException unreadable) {
        return error;
      }
    }
  }

  /** Decimals of up to 18 digits over their unscaled integers. */
  static final class UnscaledDecimals extends ColumnVector {
    final ColumnVector longs;

    UnscaledDecimals(ColumnVector longs, DataType type) {
      super(type);
      this.longs = longs;
    }

    public Decimal getDecimal(int row, int precision, int scale) {
      return longs.isNullAt(row) ? null : Decimal.createUnsafe(longs.getLong(row), precision, scale);
    }

    public void close() {
      longs.close();
    }

    public boolean hasNull() {
      return longs.hasNull();
    }

    public int numNulls() {
      return longs.numNulls();
    }

    public boolean isNullAt(int row) {
      return longs.isNullAt(row);
    }

    public boolean getBoolean(int row) {
      throw new UnsupportedOperationException();
    }

    public byte getByte(int row) {
      throw new UnsupportedOperationException();
    }

    public short getShort(int row) {
      throw new UnsupportedOperationException();
    }

    public int getInt(int row) {
      throw new UnsupportedOperationException();
    }

    public long getLong(int row) {
      return longs.getLong(row);
    }

    public float getFloat(int row) {
      throw new UnsupportedOperationException();
    }

    public double getDouble(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnarArray getArray(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnarMap getMap(int row) {
      throw new UnsupportedOperationException();
    }

    public UTF8String getUTF8String(int row) {
      throw new UnsupportedOperationException();
    }

    public byte[] getBinary(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnVector getChild(int ordinal) {
      throw new UnsupportedOperationException();
    }
  }
}
