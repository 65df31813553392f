package lancestat.relation;

import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.runtime.AbstractFunction1;

/**
 * Makes the temporary views of one session as Dataset.createOrReplaceTempView does, but without a
 * Dataset and a planned command for each, which take ten times as long.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class TemporaryViews extends AbstractFunction1 {
  final SparkSession session;
  final SessionCatalog catalog;
  final boolean anythingCached;

  TemporaryViews(SparkSession session) {
    this.session = session;
    this.catalog = session.sessionState().catalog();
    this.anythingCached = !session.sharedState().cacheManager().isEmpty();
  }

  // Spark asks for the view that is replaced in order to uncache it.
  public Object apply(Object name) {
    if (anythingCached) {
      return catalog.getRawTempView((String) name);
    }
    return scala.Option.empty();
  }

  void replace(String name, LogicalPlan plan) {
    catalog.createTempView(name, SparkApi.temporaryView(session, name, plan, this), true);
  }

  /** Drops a view of one of lancestat's tables; false where there is none of that name. */
  boolean drop(String name) {
    scala.Option view = catalog.getRawTempView(name);
    if (view.isEmpty() || ((TemporaryViewRelation) view.get()).plan().isEmpty()) {
      return false;
    }
    Object plan = ((TemporaryViewRelation) view.get()).plan().get();
    if (!isOwn(plan instanceof View ? ((View) plan).child() : plan)) {
      return false;
    }
    session.catalog().dropTempView(name);
    return true;
  }

  static boolean isOwn(Object plan) {
    if (!(plan instanceof DataSourceV2Relation)) {
      return false;
    }
    Object table = ((DataSourceV2Relation) plan).table();
    return table instanceof LanceTable || table instanceof ConnectorRelation.ConnectorTable;
  }
}
