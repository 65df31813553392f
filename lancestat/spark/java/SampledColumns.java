package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Sampled columns of one table, kept for later queries as long as memory allows: an array of values
 * by the name of the column, by the name that the planner gives a sample.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class SampledColumns {
  private static final int SAMPLES_KEPT = 8;

  private SoftReference kept = new SoftReference(null);

  /** The values of some columns in the fragments that a scan reads; null where there are none. */
  synchronized Object[][] of(ScanQuestion question, List names) throws IOException {
    Map samples = (Map) kept.get();
    if (samples == null) {
      samples = new LinkedHashMap(SAMPLES_KEPT, 0.75f, true);
      kept = new SoftReference(samples);
    }
    JsonNode reply = question.ask(request(question, names, samples));
    if (!reply.hasNonNull("sample")) {
      return null;
    }
    String name = reply.get("sample").asText();
    Map columns = (Map) samples.get(name);
    if (columns == null) {
      if (samples.size() >= SAMPLES_KEPT) {
        samples.remove(samples.keySet().iterator().next());
      }
      columns = new HashMap();
      samples.put(name, columns);
    }
    List missing = new ArrayList(names);
    missing.removeAll(columns.keySet());
    if (!missing.isEmpty()) {
      read(reply.get("arrow").binaryValue(), missing, columns);
    }
    Object[][] values = new Object[names.size()][];
    for (int i = 0; i < values.length; i++) {
      values[i] = (Object[]) columns.get(names.get(i));
    }
    return values;
  }

  private static ObjectNode request(ScanQuestion question, List names, Map samples) {
    ObjectNode request = question.request("sample");
    ArrayNode columns = request.putArray("columns");
    for (Object name : names) {
      columns.add((String) name);
    }
    ObjectNode held = request.putObject("held");
    for (Object sample : samples.entrySet()) {
      ArrayNode there = held.putArray((String) ((Map.Entry) sample).getKey());
      for (Object name : ((Map) ((Map.Entry) sample).getValue()).keySet()) {
        there.add((String) name);
      }
    }
    return request;
  }

  private static void read(byte[] stream, List names, Map columns) throws IOException {
    BufferAllocator allocator = new RootAllocator();
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator);
    try {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      ColumnVector[] vectors = new ColumnVector[root.getFieldVectors().size()];
      List[] values = new List[vectors.length];
      for (int i = 0; i < vectors.length; i++) {
        vectors[i] = new ArrowColumnVector(root.getVector(i));
        values[i] = new ArrayList();
      }
      while (reader.loadNextBatch()) {
        Iterator rows = new ColumnarBatch(vectors, root.getRowCount()).rowIterator();
        while (rows.hasNext()) {
          // Its values outlive the batch.
          InternalRow row = ((InternalRow) rows.next()).copy();
          for (int i = 0; i < vectors.length; i++) {
            values[i].add(row.get(i, vectors[i].dataType()));
          }
        }
      }
      for (int i = 0; i < vectors.length; i++) {
        columns.put(names.get(i), values[i].toArray());
      }
    } finally {
      reader.close();
      allocator.close();
    }
  }
}
