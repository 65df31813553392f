package lancestat.relation;

import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.QueryContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.command.ViewHelper$;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;

/**
 * The calls into Spark that differ between its versions, chosen by what the running Spark has.
 *
 * <p>Later versions append optional arguments, which stay empty here. What else differs is the
 * package of SparkSession and Dataset, which versions.py replaces in the sources.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class SparkApi {
  private static final Map NO_FILES = new WeakHashMap();

  private SparkApi() {}

  /** A runner of one Python function over Arrow batches. */
  static ArrowPythonRunner runner(
      ChainedPythonFunctions function,
      int evalType,
      StructType schema,
      scala.collection.immutable.Map conf,
      scala.collection.immutable.Map metrics) {
    Constructor constructor = ArrowPythonRunner.class.getConstructors()[0];
    // Since Spark 4.0 a function comes with the number of its profile.
    boolean isNumbered = constructor.getGenericParameterTypes()[0].toString().contains("Tuple2");
    Object first = isNumbered ? (Object) new scala.Tuple2(function, Long.valueOf(0L)) : function;
    Object[] given =
        new Object[] {
          Nil$.MODULE$.$colon$colon(first),
          Integer.valueOf(evalType),
          new int[][] {{0}},
          schema,
          "UTC",
          Boolean.FALSE,
          conf,
          metrics
        };
    try {
      Object made = constructor.newInstance(padded(given, constructor.getParameterTypes().length));
      return (ArrowPythonRunner) made;
    } catch (ReflectiveOperationException error) {
      throw failure(error);
    }
  }

  static DataSourceV2Relation relation(Table table, CaseInsensitiveStringMap options) {
    scala.Option none = scala.Option.empty();
    Object[] given = new Object[] {table, none, none, options};
    return (DataSourceV2Relation) call(DataSourceV2Relation$.MODULE$, "create", given);
  }

  /**
   * The files of a relation that has none, without partitions to look for: the same for all scans
   * of a session, of whose settings they have a copy.
   */
  static InMemoryFileIndex noFiles() {
    SparkSession session = SparkSession.active();
    synchronized (NO_FILES) {
      Reference known = (Reference) NO_FILES.get(session);
      InMemoryFileIndex files = known == null ? null : (InMemoryFileIndex) known.get();
      if (files == null) {
        files = madeNoFiles(session);
        // They hold the session, which is not to be held by them alone.
        NO_FILES.put(session, new WeakReference(files));
      }
      return files;
    }
  }

  private static InMemoryFileIndex madeNoFiles(SparkSession session) {
    return new InMemoryFileIndex(
        session,
        (scala.collection.immutable.Seq) Nil$.MODULE$,
        Map$.MODULE$.empty(),
        scala.Option.empty(),
        NoopCache$.MODULE$,
        scala.Option.apply(PartitionSpec.emptySpec()),
        scala.Option.empty());
  }

  static TemporaryViewRelation temporaryView(
      SparkSession session, String name, LogicalPlan plan, scala.Function1 replaced) {
    Object[] given =
        new Object[] {
          new TableIdentifier(name),
          session,
          Boolean.TRUE,
          replaced,
          scala.Option.empty(),
          plan,
          plan,
          Nil$.MODULE$
        };
    return (TemporaryViewRelation)
        call(ViewHelper$.MODULE$, "createTemporaryViewRelation", given);
  }

  /** The catalogs that a session has loaded, by name, which the manager changes too. */
  static scala.collection.mutable.Map catalogs(CatalogManager manager) {
    for (Class type = manager.getClass(); type != null; type = type.getSuperclass()) {
      try {
        Field field = type.getDeclaredField("catalogs");
        field.setAccessible(true);
        return (scala.collection.mutable.Map) field.get(manager);
      } catch (NoSuchFieldException inherited) {
        continue;
      } catch (IllegalAccessException error) {
        throw failure(error);
      }
    }
    throw new IllegalStateException("this Spark keeps its catalogs where lancestat cannot see them");
  }

  // Spark's compiler calls no static method of an interface.
  static Identifier identifier(String[] namespace, String name) {
    try {
      Method of = Identifier.class.getMethod("of", new Class[] {String[].class, String.class});
      return (Identifier) of.invoke(null, new Object[] {namespace, name});
    } catch (ReflectiveOperationException error) {
      throw failure(error);
    }
  }

  /** Whether the arguments after a table's name ask for its latest version, and not to write it. */
  static boolean isRead(Object[] arguments) {
    if (arguments.length < 3) {
      return arguments.length == 1;
    }
    // Since Spark 4.3 one object says all of it.
    Object context = arguments[1];
    Optional version = (Optional) call(context, "timeTravel", new Object[0]);
    return version.isEmpty() && ((Set) call(context, "writePrivileges", new Object[0])).isEmpty();
  }

  /**
   * The error of a query that cannot be resolved, which Spark throws for tables that are not there.
   *
   * <p>It is thrown where methods do not declare it, as Scala does. A Spark that makes such errors
   * otherwise gets the error as it is.
   */
  static RuntimeException ofAnalysis(RuntimeException error) {
    scala.Option none = scala.Option.empty();
    Class[] types =
        new Class[] {
          String.class,
          scala.Option.class,
          scala.Option.class,
          scala.Option.class,
          scala.Option.class,
          scala.collection.immutable.Map.class,
          QueryContext[].class
        };
    Object[] given =
        new Object[] {
          error.getMessage(),
          none,
          none,
          scala.Option.apply(error),
          none,
          Map$.MODULE$.empty(),
          new QueryContext[0]
        };
    try {
      Constructor constructor = AnalysisException.class.getConstructor(types);
      Platform.throwException((Throwable) constructor.newInstance(given));
    } catch (ReflectiveOperationException other) {
      return error;
    }
    return error;
  }

  /** Calls the method of that name with the fewest arguments that takes all that are given. */
  private static Object call(Object target, String name, Object[] given) {
    Method chosen = null;
    Method[] methods = target.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      int count = methods[i].getParameterTypes().length;
      if (methods[i].getName().equals(name)
          && count >= given.length
          && (chosen == null || count < chosen.getParameterTypes().length)) {
        chosen = methods[i];
      }
    }
    if (chosen == null) {
      throw new IllegalStateException("this Spark has no " + name + " that lancestat can call");
    }
    try {
      return chosen.invoke(target, padded(given, chosen.getParameterTypes().length));
    } catch (ReflectiveOperationException error) {
      throw failure(error);
    }
  }

  private static Object[] padded(Object[] given, int count) {
    Object[] arguments = new Object[count];
    for (int i = 0; i < count; i++) {
      arguments[i] = i < given.length ? given[i] : scala.Option.empty();
    }
    return arguments;
  }

  private static RuntimeException failure(ReflectiveOperationException error) {
    if (error instanceof InvocationTargetException && error.getCause() instanceof RuntimeException) {
      return (RuntimeException) error.getCause();
    }
    return new IllegalStateException(error);
  }
}
