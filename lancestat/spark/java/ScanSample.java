package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Rows of the fragments that a scan reads, on which Spark's own expressions are evaluated. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class ScanSample {
  private final LanceScan scan;
  // By the names of the columns, in their order; null where there is no sample.
  private final Map rows = new HashMap();
  // By the canonical form of the condition.
  private final Map passing = new HashMap();
  private int size;

  ScanSample(LanceScan scan) {
    this.scan = scan;
  }

  /** Whether a condition can be evaluated here, without a query or a Python worker. */
  static boolean evaluates(Expression condition) {
    if (condition instanceof Attribute) {
      return true;
    }
    if (condition instanceof Unevaluable || !condition.deterministic()) {
      return false;
    }
    scala.collection.Iterator below = condition.children().iterator();
    while (below.hasNext()) {
      if (!evaluates((Expression) below.next())) {
        return false;
      }
    }
    return !SubqueryExpression$.MODULE$.hasSubquery(condition);
  }

  /** Which rows pass a condition, a bit each; null where that cannot be said. */
  synchronized BitSet passing(Expression condition) {
    Expression key = (Expression) condition.canonicalized();
    if (!passing.containsKey(key)) {
      passing.put(key, evaluated(condition));
    }
    return (BitSet) passing.get(key);
  }

  /** The number of rows, once some were asked for. */
  int size() {
    return size;
  }

  private BitSet evaluated(Expression condition) {
    try {
      Map places = new HashMap();
      List names = new ArrayList();
      scala.collection.Iterator columns = condition.references().iterator();
      while (columns.hasNext()) {
        Attribute column = (Attribute) columns.next();
        Expression bound = new BoundReference(names.size(), column.dataType(), true);
        places.put(column.exprId(), bound);
        names.add(column.name());
      }
      List sampled = names.isEmpty() ? null : rows(names);
      if (sampled == null) {
        return null;
      }
      Expression evaluated = Conditions.replaced(condition, places);
      BitSet passing = new BitSet();
      size = sampled.size();
      for (int i = 0; i < size; i++) {
        passing.set(i, Boolean.TRUE.equals(evaluated.eval((InternalRow) sampled.get(i))));
      }
      return passing;
    } catch (Throwable error) {
      // As a cast that fails in ANSI mode, whose error has a value of a row.
      Failure.requireSurvivable(error);
      LanceRelation.LOG.debug("no sample of " + scan.table.name + ": " + error.getClass());
      return null;
    }
  }

  private List rows(List names) throws IOException {
    if (!rows.containsKey(names)) {
      ObjectNode request = scan.question.request("sample");
      ArrayNode columns = request.putArray("columns");
      for (Object name : names) {
        columns.add((String) name);
      }
      JsonNode reply = scan.question.ask(request);
      rows.put(names, reply.hasNonNull("arrow") ? read(reply.get("arrow").binaryValue()) : null);
    }
    return (List) rows.get(names);
  }

  private static List read(byte[] stream) throws IOException {
    List read = new ArrayList();
    BufferAllocator allocator = new RootAllocator();
    ArrowStreamReader reader =
        new ArrowStreamReader(new ByteArrayInputStream(stream), allocator);
    try {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        ColumnVector[] vectors = new ColumnVector[root.getFieldVectors().size()];
        for (int i = 0; i < vectors.length; i++) {
          vectors[i] = new ArrowColumnVector(root.getVector(i));
        }
        ColumnarBatch batch = new ColumnarBatch(vectors, root.getRowCount());
        Iterator remaining = batch.rowIterator();
        while (remaining.hasNext()) {
          read.add(((InternalRow) remaining.next()).copy());
        }
      }
    } finally {
      reader.close();
      allocator.close();
    }
    return read;
  }
}
