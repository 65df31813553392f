package lancestat.relation;

import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import scala.runtime.AbstractFunction0;

/** Runs a query and counts its rows, which nobody gets; Spark lists it among its executions. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class QueryRun extends AbstractFunction0 {
  private final QueryExecution execution;

  private QueryRun(QueryExecution execution) {
    this.execution = execution;
  }

  static long of(QueryExecution execution) {
    Object rows =
        SQLExecution$.MODULE$.withNewExecutionId(
            execution, scala.Option.apply("explain"), new QueryRun(execution));
    return ((Long) rows).longValue();
  }

  public Object apply() {
    // Only where its rows are collected does a limit read no more partitions than it needs.
    if (execution.sparkPlan() instanceof CollectLimitExec) {
      return Long.valueOf(execution.executedPlan().executeCollect().length);
    }
    return Long.valueOf(execution.toRdd().count());
  }
}
