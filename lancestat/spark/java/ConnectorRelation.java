package lancestat.relation;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util$;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.datasources.DataSource$;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.execution.datasources.v2.FileScanBuilder;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of another DSv2 source, such as the Lance connector's: that source reads, and lancestat's
 * planner estimates.
 *
 * <p>Its scans are proxies with the interfaces of the source's own.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
public final class ConnectorRelation {

  /** The source of that name on the class path, or null where it has none that Spark can ask. */
  static TableProvider provider(SparkSession session, String name) {
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    // Jars that were added to a running session are seen by this loader alone.
    thread.setContextClassLoader(session.sharedState().jarClassLoader());
    try {
      scala.Option source =
          DataSource$.MODULE$.lookupDataSourceV2(name, session.sessionState().conf());
      return source.isDefined() ? (TableProvider) source.get() : null;
    } finally {
      thread.setContextClassLoader(before);
    }
  }

  // Python cannot make the following calls: py4j finds no method that a class has from an interface
  // of its interfaces, such as inferPartitioning of a source with SupportsCatalogOptions.

  /** The schema that a source infers, or null where it finds no table. */
  static StructType schema(TableProvider source, CaseInsensitiveStringMap options) {
    return source.inferSchema(options);
  }

  /** The table that a source opens. */
  static Table table(TableProvider source, StructType schema, CaseInsensitiveStringMap options) {
    return source.getTable(
        schema, source.inferPartitioning(options), options.asCaseSensitiveMap());
  }

  /** The columns of an open table, which may have other types than its source inferred. */
  static StructType columns(Table table) {
    return CatalogV2Util$.MODULE$.v2ColumnsToStructType(table.columns());
  }

  static boolean isReadable(Table table) {
    return table instanceof SupportsRead
        && table.capabilities().contains(TableCapability.BATCH_READ);
  }

  /** A table that `inner` reads; `planned` is the same table as lancestat plans it. */
  static Table over(Table inner, LanceTable planned) {
    if (inner instanceof SupportsMetadataColumns) {
      return new ConnectorTableWithMetadata(inner, planned);
    }
    return new ConnectorTable(inner, planned);
  }

  static class ConnectorTable implements SupportsRead, TruncatableTable {
    // They say which table and which version is read, and that is settled.
    static final Set SETTLED =
        new HashSet(
            Arrays.asList(new Object[] {"path", "version", "tag", "branch", "timestamp", "ref"}));
    final Table inner;
    final LanceTable planned;

    ConnectorTable(Table inner, LanceTable planned) {
      this.inner = inner;
      this.planned = planned;
    }

    public String name() {
      return planned.name();
    }

    @SuppressWarnings("deprecation")
    public StructType schema() {
      return inner.schema();
    }

    public Column[] columns() {
      return inner.columns();
    }

    public Transform[] partitioning() {
      return inner.partitioning();
    }

    public boolean truncateTable() {
      return planned.truncateTable();
    }

    public Set<TableCapability> capabilities() {
      return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Map passed = new HashMap();
      for (Object option : options.asCaseSensitiveMap().entrySet()) {
        Map.Entry entry = (Map.Entry) option;
        String key = ((String) entry.getKey()).toLowerCase(Locale.ROOT);
        if (!SETTLED.contains(key) && !key.startsWith("cbo.")) {
          passed.put(entry.getKey(), entry.getValue());
        }
      }
      ScanBuilder builder =
          ((SupportsRead) inner).newScanBuilder(new CaseInsensitiveStringMap(passed));
      return new ConnectorScanBuilder(builder, (LanceScanBuilder) planned.newScanBuilder(options));
    }

    public String version() {
      return planned.version();
    }

    public boolean equals(Object other) {
      return other instanceof ConnectorTable && planned.equals(((ConnectorTable) other).planned);
    }

    public int hashCode() {
      return planned.hashCode();
    }
  }

  static final class ConnectorTableWithMetadata extends ConnectorTable
      implements SupportsMetadataColumns {
    ConnectorTableWithMetadata(Table inner, LanceTable planned) {
      super(inner, planned);
    }

    public MetadataColumn[] metadataColumns() {
      return ((SupportsMetadataColumns) inner).metadataColumns();
    }

    public boolean canRenameConflictingMetadataColumns() {
      return ((SupportsMetadataColumns) inner).canRenameConflictingMetadataColumns();
    }
  }

  /**
   * A scan builder whose source and whose estimate see the same filters and columns.
   *
   * <p>Of what Spark can push down it takes that which leaves rows as the statistics describe them.
   * It is one of files, as LanceScanBuilder is, for the sake of Spark before 4.1.
   */
  static final class ConnectorScanBuilder extends FileScanBuilder
      implements SupportsPushDownLimit, SupportsPushDownTopN, SupportsPushDownAggregates {
    final ScanBuilder inner;
    final LanceScanBuilder estimator;

    ConnectorScanBuilder(ScanBuilder inner, LanceScanBuilder estimator) {
      super(SparkSession.active(), SparkApi.noFiles(), estimator.table.schema);
      this.inner = inner;
      this.estimator = estimator;
    }

    public void pruneColumns(StructType required) {
      if (inner instanceof SupportsPushDownRequiredColumns) {
        ((SupportsPushDownRequiredColumns) inner).pruneColumns(required);
      }
    }

    // Spark gets all of them back: it estimates what they leave, and applies them once more.
    public scala.collection.immutable.Seq pushFilters(scala.collection.immutable.Seq given) {
      push(given);
      return given;
    }

    public Predicate[] pushedFilters() {
      return new Predicate[0];
    }

    public boolean pushLimit(int rows) {
      return inner instanceof SupportsPushDownLimit
          && ((SupportsPushDownLimit) inner).pushLimit(rows);
    }

    public boolean pushTopN(SortOrder[] orders, int rows) {
      return inner instanceof SupportsPushDownTopN
          && ((SupportsPushDownTopN) inner).pushTopN(orders, rows);
    }

    // What is left of a limit stays in the plan, and so in the estimate.
    public boolean isPartiallyPushed() {
      return true;
    }

    // The planner answers aggregates, and the source never hears of them.
    public boolean pushAggregation(Aggregation aggregation) {
      return estimator.pushAggregation(aggregation);
    }

    public boolean supportCompletePushDown(Aggregation aggregation) {
      return estimator.supportCompletePushDown(aggregation);
    }

    // The source may read other columns than Spark required, and has the last word.
    public Scan build() {
      if (estimator.answered != null) {
        return estimator.answered;
      }
      Scan scan = inner.build();
      List known = new ArrayList();
      StructType schema = estimator.table.schema;
      for (StructField field : scan.readSchema().fields()) {
        if (schema.getFieldIndex(field.name()).isDefined()) {
          known.add(field);
        }
      }
      estimator.pruneColumns(new StructType((StructField[]) known.toArray(new StructField[0])));
      return ScanProxy.of(scan, (LanceScan) estimator.build());
    }

    /** Filters for the estimate, and for the source in the form that it takes. */
    void push(scala.collection.immutable.Seq filters) {
      estimator.question.add(filters);
      if (inner instanceof SupportsPushDownCatalystFilters) {
        ((SupportsPushDownCatalystFilters) inner).pushFilters(filters);
      } else if (inner instanceof SupportsPushDownV2Filters) {
        List passed = translated(filters, false);
        ((SupportsPushDownV2Filters) inner)
            .pushPredicates((Predicate[]) passed.toArray(new Predicate[0]));
      } else if (inner instanceof SupportsPushDownFilters) {
        List passed = translated(filters, true);
        ((SupportsPushDownFilters) inner).pushFilters((Filter[]) passed.toArray(new Filter[0]));
      }
    }

    static List translated(scala.collection.immutable.Seq filters, boolean areJavas) {
      List passed = new ArrayList();
      scala.collection.Iterator expressions = filters.iterator();
      while (expressions.hasNext()) {
        Expression filter = (Expression) expressions.next();
        // A source that is not pushed a filter reads more rows, of which Spark keeps the right ones.
        if (!Filters.hasCommonFloats(filter) || Filters.levels(filter) > Filters.DEEPEST_SHOWN) {
          continue;
        }
        scala.Option translation = areJavas ? asJavas(filter) : asPredicate(filter);
        if (translation.isDefined()) {
          passed.add(translation.get());
        }
      }
      return passed;
    }

    static scala.Option asJavas(Expression filter) {
      return Filters.isLosslessInJava(filter)
          ? DataSourceStrategy$.MODULE$.translateFilter(filter, true)
          : scala.Option.empty();
    }

    static scala.Option asPredicate(Expression filter) {
      try {
        return DataSourceV2Strategy$.MODULE$.translateFilterV2(filter);
      } catch (AssertionError unknown) {
        // Spark 4.3 meets a condition inside an expression with it, as in coalesce(not (...), f).
        return scala.Option.empty();
      }
    }
  }

  /** A scan that reads as the source does and reports what the planner estimates. */
  static final class ScanProxy implements InvocationHandler {
    final Scan inner;
    final LanceScan estimator;

    ScanProxy(Scan inner, LanceScan estimator) {
      this.inner = inner;
      this.estimator = estimator;
    }

    static Scan of(Scan inner, LanceScan estimator) {
      Set exposed = interfaces(inner.getClass());
      exposed.add(SupportsReportStatistics.class);
      return (Scan) proxy(inner, exposed, new ScanProxy(inner, estimator));
    }

    public Object invoke(Object proxy, Method method, Object[] args) throws Throwable {
      String name = method.getName();
      if (name.equals("estimateStatistics")) {
        return estimator.estimateStatistics();
      }
      if (name.equals("estimateSizeInBytes")) {
        return estimator.estimateStatistics().sizeInBytes();
      }
      if (name.equals("toBatch")) {
        // The source knows the table by its version number alone.
        estimator.verify();
      }
      // True of no filter at all: every one is still in the plan.
      if (name.equals("reflectsFullyPushedDownFilters")) {
        return Boolean.TRUE;
      }
      if (name.equals("equals") && args != null && args.length == 1) {
        return Boolean.valueOf(isSame(args[0]));
      }
      return call(inner, method, args);
    }

    // Spark reads once what equal scans ask for.
    boolean isSame(Object other) {
      if (other == null || !Proxy.isProxyClass(other.getClass())) {
        return false;
      }
      InvocationHandler handler = Proxy.getInvocationHandler(other);
      return handler instanceof ScanProxy
          && inner.equals(((ScanProxy) handler).inner)
          && estimator.equals(((ScanProxy) handler).estimator);
    }
  }

  /** The scan as the planner knows it, null where another source plans it. */
  static Explained explained(Scan scan) {
    if (scan instanceof Explained) {
      return (Explained) scan;
    }
    if (!Proxy.isProxyClass(scan.getClass())) {
      return null;
    }
    InvocationHandler handler = Proxy.getInvocationHandler(scan);
    return handler instanceof ScanProxy ? ((ScanProxy) handler).estimator : null;
  }

  static Object proxy(Object inner, Set interfaces, InvocationHandler handler) {
    return Proxy.newProxyInstance(
        loader(inner.getClass()), (Class[]) interfaces.toArray(new Class[0]), handler);
  }

  static ClassLoader loader(Class type) {
    ClassLoader loader = type.getClassLoader();
    return loader == null ? ConnectorRelation.class.getClassLoader() : loader;
  }

  /** The interfaces of a class and its parents that a proxy beside it can have. */
  static Set interfaces(Class type) {
    Set interfaces = new LinkedHashSet();
    for (Class ancestor = type; ancestor != null; ancestor = ancestor.getSuperclass()) {
      collect(ancestor, loader(type), interfaces);
    }
    return interfaces;
  }

  static void collect(Class type, ClassLoader loader, Set interfaces) {
    Class[] parents = type.getInterfaces();
    for (int i = 0; i < parents.length; i++) {
      if (Modifier.isPublic(parents[i].getModifiers())
          && !parents[i].isSealed()
          && isVisible(parents[i], loader)) {
        interfaces.add(parents[i]);
      }
      collect(parents[i], loader, interfaces);
    }
  }

  static boolean isVisible(Class type, ClassLoader loader) {
    try {
      return Class.forName(type.getName(), false, loader) == type;
    } catch (ClassNotFoundException error) {
      return false;
    }
  }

  static Object call(Object target, Method method, Object[] args) throws Throwable {
    try {
      return method.invoke(target, args);
    } catch (InvocationTargetException error) {
      Throwable cause = error.getCause();
      if (cause instanceof RuntimeException || cause instanceof Error) {
        throw cause;
      }
      // Spark's own exceptions are checked, which a proxy would hide behind one without a message.
      throw new IllegalStateException(cause.getMessage(), cause);
    }
  }
}
