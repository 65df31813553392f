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
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Samples of one table, by the names that the planner gives them, kept for later queries as long as
 * memory allows.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class SampledColumns {
  private static final int SAMPLES_KEPT = 8;

  private SoftReference kept = new SoftReference(null);

  /** A sample of the fragments that a scan reads, with some columns; null where there is none. */
  synchronized Sample of(ScanQuestion question, List names) throws IOException {
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
    Sample sample = (Sample) samples.get(name);
    if (sample == null) {
      if (samples.size() >= SAMPLES_KEPT) {
        samples.remove(samples.keySet().iterator().next());
      }
      sample = new Sample();
      samples.put(name, sample);
    }
    List missing = new ArrayList(names);
    missing.removeAll(sample.columns.keySet());
    if (!missing.isEmpty()) {
      read(reply.get("arrow").binaryValue(), missing, sample.columns);
    }
    return sample;
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
      for (Object name : ((Sample) ((Map.Entry) sample).getValue()).columns.keySet()) {
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

  /** The values of columns in some rows, by their names, and what was made of them. */
  static final class Sample {
    private static final int MOST_MADE = 256;

    private final Map columns = new ConcurrentHashMap();
    private final Map made = new HashMap();

    Object[][] values(List names) {
      Object[][] values = new Object[names.size()][];
      for (int i = 0; i < values.length; i++) {
        values[i] = (Object[]) columns.get(names.get(i));
      }
      return values;
    }

    /** What was made by a key, in an array of its own, as it may be null; null if nothing was. */
    synchronized Object[] made(Object key) {
      return (Object[]) made.get(key);
    }

    synchronized void keep(Object key, Object value) {
      if (made.size() >= MOST_MADE) {
        made.clear();
      }
      made.put(key, new Object[] {value});
    }
  }
}
