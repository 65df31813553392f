package lancestat.fake;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsCatalogOptions;
import org.apache.spark.sql.connector.catalog.SupportsDelete;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownOffset;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTableSample;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Data sources over rows in memory, whose scan builders and scans have different interfaces. Each
 * claims to apply whatever is pushed down and notes it; none does.
 */
@SuppressWarnings({"cast", "deprecation", "rawtypes", "serial", "unchecked"})
public final class FakeSource {
  static final Map HELD = new ConcurrentHashMap();
  static final Map LATEST = new ConcurrentHashMap();
  static final List NOTES = Collections.synchronizedList(new ArrayList());

  /** Hold the rows of a Dataset as a version of a path. */
  public void hold(String path, String version, Dataset rows) {
    Held held = new Held();
    held.schema = rows.schema();
    InternalRow[] collected = rows.queryExecution().executedPlan().executeCollect();
    held.rows = new InternalRow[collected.length];
    for (int i = 0; i < collected.length; i++) {
      held.rows[i] = collected[i].copy();
    }
    HELD.put(path + "@" + version, held);
    LATEST.put(path, version);
  }

  /** What was pushed down since the last call, in order. */
  public List notes() {
    List noted = new ArrayList(NOTES);
    NOTES.clear();
    return noted;
  }

  static void note(String text) {
    NOTES.add(text);
  }

  static final class Held {
    StructType schema;
    InternalRow[] rows;
  }

  /**
   * What the connector's source is: of a class whose parent has the interface that has the interface
   * of sources, with methods by default.
   */
  abstract static class CatalogSource implements SupportsCatalogOptions, DataSourceRegister {
    public boolean supportsExternalMetadata() {
      return true;
    }

    public Identifier extractIdentifier(CaseInsensitiveStringMap options) {
      throw new UnsupportedOperationException("no catalog has this table");
    }
  }

  /** A source with no push-down at all. */
  public static class Bare extends CatalogSource {
    public String shortName() {
      return "lancestat-fake";
    }

    Held held(Map options) {
      return (Held) HELD.get(options.get("path") + "@" + options.get("version"));
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
      Held held = held(options.asCaseSensitiveMap());
      return held == null ? null : held.schema;
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
      return new FakeTable(held(properties), builders());
    }

    Builders builders() {
      return new Builders();
    }
  }

  /** Columns and V1 filters. */
  public static class V1 extends Bare {
    Builders builders() {
      return new V1Builders();
    }
  }

  /** Columns and V2 filters, in columnar batches. */
  public static class V2 extends Bare {
    Builders builders() {
      return new V2Builders();
    }
  }

  /** Whatever can be pushed down, statistics of its own, run-time filters, metadata columns. */
  public static class All extends Bare {
    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
      return new AllTable(held(properties), new AllBuilders());
    }
  }

  /** Takes no notice of versions. */
  public static class Unpinned extends Bare {
    Held held(Map options) {
      return (Held) HELD.get(options.get("path") + "@1");
    }
  }

  /** Cannot be read in batches. */
  public static class Unreadable extends Bare {
    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
      return new UnreadableTable(held(properties), builders());
    }
  }

  /** Fails at planning, with an exception that Java has one declare. */
  public static class Failing extends Bare {
    Builders builders() {
      return new FailingBuilders();
    }
  }

  /** Fails at once, and repeats what it was given. */
  public static class Talkative extends Bare {
    public StructType inferSchema(CaseInsensitiveStringMap options) {
      throw new IllegalArgumentException("cannot open " + options.asCaseSensitiveMap());
    }
  }

  /** A catalog of the tables in a folder, which notes what is loaded and written. */
  public static class Catalog implements TableCatalog, SupportsNamespaces, FunctionCatalog {
    String name;
    String root;

    public void initialize(String given, CaseInsensitiveStringMap options) {
      name = given;
      root = options.get("root");
    }

    public String name() {
      return name;
    }

    Table load(Identifier table, String version, String what) throws NoSuchTableException {
      String path = root + "/" + table.name() + ".lance";
      String known = version == null ? (String) LATEST.get(path) : version;
      Held held = (Held) HELD.get(path + "@" + known);
      if (known == null || held == null) {
        throw new NoSuchTableException(table);
      }
      note("load " + what);
      return new CatalogTable(held, path);
    }

    public Table loadTable(Identifier table) throws NoSuchTableException {
      return load(table, null, "latest");
    }

    public Table loadTable(Identifier table, String version) throws NoSuchTableException {
      return load(table, version, "version " + version);
    }

    public Table loadTable(Identifier table, Set privileges) throws NoSuchTableException {
      return load(table, null, "to write");
    }

    public Identifier[] listTables(String[] namespace) {
      return new Identifier[0];
    }

    public Table createTable(Identifier table, StructType schema, Transform[] parts, Map given) {
      note("create " + table.name());
      return new CatalogTable(held(schema), root + "/" + table.name() + ".lance");
    }

    public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map given) {
      note("create " + table.name());
      return new CatalogTable(held(new StructType()), root + "/" + table.name() + ".lance");
    }

    static Held held(StructType schema) {
      Held held = new Held();
      held.schema = schema;
      held.rows = new InternalRow[0];
      return held;
    }

    public Table alterTable(Identifier table, TableChange[] changes) throws NoSuchTableException {
      note("alter " + table.name());
      return load(table, null, "latest");
    }

    public boolean dropTable(Identifier table) {
      note("drop " + table.name());
      return true;
    }

    public void renameTable(Identifier from, Identifier to) {
      note("rename " + from.name());
    }

    public String[][] listNamespaces() {
      return new String[][] {{"only"}};
    }

    public String[][] listNamespaces(String[] namespace) {
      return new String[0][];
    }

    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
      if (namespace.length != 1 || !namespace[0].equals("only")) {
        throw new NoSuchNamespaceException(namespace);
      }
      return Collections.emptyMap();
    }

    public void createNamespace(String[] namespace, Map given) {
      note("create namespace");
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes) {}

    public boolean dropNamespace(String[] namespace, boolean cascade) {
      note("drop namespace");
      return true;
    }

    public Identifier[] listFunctions(String[] namespace) {
      return new Identifier[0];
    }

    public UnboundFunction loadFunction(Identifier function) {
      throw new UnsupportedOperationException("the catalog's own function");
    }
  }

  /** Where a table of the connector says that it reads. */
  public static final class ReadOptions {
    final String uri;

    ReadOptions(String uri) {
      this.uri = uri;
    }

    public String getDatasetUri() {
      return uri;
    }
  }

  public static class CatalogTable extends FakeTable
      implements SupportsMetadataColumns, SupportsWrite, SupportsDelete {
    final ReadOptions options;

    CatalogTable(Held held, String uri) {
      super(held, new V1Builders());
      this.options = new ReadOptions(uri);
    }

    public ReadOptions readOptions() {
      return options;
    }

    public Set capabilities() {
      return new HashSet(
          Arrays.asList(
              new Object[] {TableCapability.BATCH_READ, TableCapability.BATCH_WRITE}));
    }

    public MetadataColumn[] metadataColumns() {
      return new MetadataColumn[] {new Place()};
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      note("write");
      throw new UnsupportedOperationException("nothing is written here");
    }

    public void deleteWhere(Filter[] filters) {
      note("delete");
    }
  }

  static class Builders {
    ScanBuilder builder(Held held) {
      return new BareBuilder(held);
    }
  }

  static final class V1Builders extends Builders {
    ScanBuilder builder(Held held) {
      return new V1Builder(held);
    }
  }

  static final class V2Builders extends Builders {
    ScanBuilder builder(Held held) {
      return new V2Builder(held);
    }
  }

  static final class AllBuilders extends Builders {
    ScanBuilder builder(Held held) {
      return new AllBuilder(held);
    }
  }

  static final class FailingBuilders extends Builders {
    ScanBuilder builder(Held held) {
      return new FailingBuilder(held);
    }
  }

  static class FakeTable implements Table, SupportsRead {
    final Held held;
    final Builders builders;

    FakeTable(Held held, Builders builders) {
      this.held = held;
      this.builders = builders;
    }

    public String name() {
      return "fake";
    }

    public StructType schema() {
      return held.schema;
    }

    public Set capabilities() {
      return new HashSet(
          Arrays.asList(
              new Object[] {TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ}));
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      note("options " + options.asCaseSensitiveMap());
      return builders.builder(held);
    }
  }

  static final class UnreadableTable extends FakeTable {
    UnreadableTable(Held held, Builders builders) {
      super(held, builders);
    }

    public Set capabilities() {
      return Collections.singleton(TableCapability.BATCH_WRITE);
    }
  }

  static final class AllTable extends FakeTable
      implements SupportsMetadataColumns, SupportsWrite, StagedTable {
    AllTable(Held held, Builders builders) {
      super(held, builders);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      throw new UnsupportedOperationException("nothing is written here");
    }

    public void commitStagedChanges() {}

    public void abortStagedChanges() {}

    public MetadataColumn[] metadataColumns() {
      return new MetadataColumn[] {new Place()};
    }
  }

  static final class Place implements MetadataColumn {
    public String name() {
      return "_place";
    }

    public DataType dataType() {
      return DataTypes.LongType;
    }
  }

  static class BareBuilder implements ScanBuilder {
    final Held held;
    StructType columns;

    BareBuilder(Held held) {
      this.held = held;
      this.columns = held.schema;
    }

    public Scan build() {
      return new BareScan(this, false);
    }

    // As the connector does: nothing required means everything.
    void prune(StructType required) {
      note("columns " + String.join(",", required.fieldNames()));
      if (required.length() > 0) {
        columns = required;
      }
    }
  }

  static final class V1Builder extends BareBuilder
      implements SupportsPushDownRequiredColumns, SupportsPushDownFilters {
    Filter[] pushed = new Filter[0];

    V1Builder(Held held) {
      super(held);
    }

    public void pruneColumns(StructType required) {
      prune(required);
    }

    public Filter[] pushFilters(Filter[] filters) {
      note("V1 filters " + Arrays.toString(filters));
      pushed = filters;
      return new Filter[0];
    }

    public Filter[] pushedFilters() {
      return pushed;
    }
  }

  static class V2Builder extends BareBuilder
      implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
    Predicate[] pushed = new Predicate[0];

    V2Builder(Held held) {
      super(held);
    }

    public void pruneColumns(StructType required) {
      prune(required);
    }

    public Predicate[] pushPredicates(Predicate[] predicates) {
      note("V2 filters " + Arrays.toString(predicates));
      pushed = predicates;
      return new Predicate[0];
    }

    public Predicate[] pushedPredicates() {
      return pushed;
    }

    public Scan build() {
      return new BareScan(this, true);
    }
  }

  static final class AllBuilder extends V2Builder
      implements SupportsPushDownAggregates,
          SupportsPushDownLimit,
          SupportsPushDownOffset,
          SupportsPushDownTableSample,
          SupportsPushDownTopN {
    AllBuilder(Held held) {
      super(held);
    }

    public boolean pushAggregation(Aggregation aggregation) {
      note("aggregation");
      return true;
    }

    public boolean pushLimit(int limit) {
      note("limit " + limit);
      return true;
    }

    public boolean pushOffset(int offset) {
      note("offset " + offset);
      return true;
    }

    public boolean pushTableSample(double low, double high, boolean replaced, long seed) {
      note("sample");
      return true;
    }

    public boolean pushTopN(SortOrder[] orders, int limit) {
      note("top " + limit);
      return true;
    }

    public boolean isPartiallyPushed() {
      return false;
    }

    public Scan build() {
      return new AllScan(this);
    }
  }

  static final class FailingBuilder extends BareBuilder {
    FailingBuilder(Held held) {
      super(held);
    }

    public Scan build() {
      return (Scan) FakeSource.<RuntimeException>sneak(new java.io.IOException("the disk is full"));
    }
  }

  static <T extends Throwable> Object sneak(Throwable error) throws T {
    throw (T) error;
  }

  static class BareScan implements Scan, Batch {
    final Held held;
    final StructType columns;
    final boolean columnar;

    BareScan(BareBuilder builder, boolean columnar) {
      this.held = builder.held;
      this.columns = builder.columns;
      this.columnar = columnar;
    }

    public StructType readSchema() {
      return columns;
    }

    public String description() {
      return "fake scan";
    }

    public Batch toBatch() {
      return this;
    }

    public InputPartition[] planInputPartitions() {
      int middle = held.rows.length / 2;
      return new InputPartition[] {slice(0, middle), slice(middle, held.rows.length)};
    }

    Slice slice(int start, int stop) {
      InternalRow[] rows = new InternalRow[stop - start];
      for (int i = 0; i < rows.length; i++) {
        Object[] values = new Object[columns.length()];
        for (int j = 0; j < values.length; j++) {
          StructField field = columns.fields()[j];
          if (field.name().equals("_place")) {
            values[j] = Long.valueOf(start + i);
          } else {
            values[j] =
                held.rows[start + i].get(held.schema.fieldIndex(field.name()), field.dataType());
          }
        }
        rows[i] = new GenericInternalRow(values);
      }
      return new Slice(rows, columns);
    }

    public PartitionReaderFactory createReaderFactory() {
      return new Readers(columnar);
    }

    public boolean equals(Object other) {
      return other instanceof BareScan
          && held == ((BareScan) other).held
          && columns.equals(((BareScan) other).columns);
    }

    public int hashCode() {
      return columns.hashCode();
    }
  }

  static final class AllScan extends BareScan
      implements SupportsReportStatistics, SupportsReportPartitioning, SupportsRuntimeV2Filtering {
    AllScan(BareBuilder builder) {
      super(builder, false);
    }

    public Statistics estimateStatistics() {
      return new Wrong();
    }

    public Partitioning outputPartitioning() {
      return new UnknownPartitioning(2);
    }

    public NamedReference[] filterAttributes() {
      String[] names = columns.fieldNames();
      NamedReference[] found = new NamedReference[names.length];
      for (int i = 0; i < names.length; i++) {
        found[i] = Expressions.column(names[i]);
      }
      return found;
    }

    public void filter(Predicate[] predicates) {
      note("run-time filter");
    }
  }

  static final class Wrong implements Statistics {
    public OptionalLong sizeInBytes() {
      return OptionalLong.of(7L);
    }

    public OptionalLong numRows() {
      return OptionalLong.of(7L);
    }
  }

  static final class Slice implements InputPartition {
    final InternalRow[] rows;
    final StructType columns;

    Slice(InternalRow[] rows, StructType columns) {
      this.rows = rows;
      this.columns = columns;
    }
  }

  static final class Readers implements PartitionReaderFactory, Serializable {
    final boolean columnar;

    Readers(boolean columnar) {
      this.columnar = columnar;
    }

    public boolean supportColumnarReads(InputPartition partition) {
      return columnar;
    }

    public PartitionReader createReader(InputPartition partition) {
      return new RowReader(((Slice) partition).rows);
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
      Slice slice = (Slice) partition;
      OnHeapColumnVector[] vectors =
          OnHeapColumnVector.allocateColumns(slice.rows.length + 1, slice.columns);
      for (int i = 0; i < slice.rows.length; i++) {
        for (int j = 0; j < vectors.length; j++) {
          put(vectors[j], i, slice.rows[i], j, slice.columns.fields()[j].dataType());
        }
      }
      return new RowReader(
          new Object[] {new ColumnarBatch((ColumnVector[]) vectors, slice.rows.length)});
    }

    static void put(OnHeapColumnVector vector, int place, InternalRow row, int column, DataType t) {
      if (row.isNullAt(column)) {
        vector.putNull(place);
      } else if (t.equals(DataTypes.LongType) || t.equals(DataTypes.TimestampType)) {
        vector.putLong(place, row.getLong(column));
      } else if (t.equals(DataTypes.DateType) || t.equals(DataTypes.IntegerType)) {
        vector.putInt(place, row.getInt(column));
      } else if (t.equals(DataTypes.DoubleType)) {
        vector.putDouble(place, row.getDouble(column));
      } else {
        vector.putByteArray(place, row.getUTF8String(column).getBytes());
      }
    }
  }

  static final class RowReader implements PartitionReader {
    final Object[] items;
    int place = -1;

    RowReader(Object[] items) {
      this.items = items;
    }

    public boolean next() {
      place++;
      return place < items.length;
    }

    public Object get() {
      return items[place];
    }

    public void close() {}
  }
}
