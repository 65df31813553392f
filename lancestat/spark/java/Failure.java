package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;

/** What a Python process raised, as it crosses the JVM. */
final class Failure {
  // `lancestat.spark.failure` puts it before the error's JSON.
  static final String MARK = "lancestat-error:";

  /** Logs a failure that a query goes on after; what the JVM itself fails of is thrown again. */
  static void survived(String what, Throwable error) {
    requireSurvivable(error);
    LanceRelation.LOG.warn(what + ": " + error);
  }

  /** Throws again what the JVM itself fails of, and keeps an interrupt. */
  static void requireSurvivable(Throwable error) {
    if (error instanceof VirtualMachineError && !(error instanceof StackOverflowError)) {
      throw (VirtualMachineError) error;
    }
    if (error instanceof InterruptedException) {
      Thread.currentThread().interrupt();
    }
  }

  /** An exception whose message is the error's own text and whose cause still carries its JSON. */
  static RuntimeException explained(RuntimeException error) {
    String text = String.valueOf(error.getMessage());
    int mark = text.indexOf(MARK);
    if (mark < 0) {
      return error;
    }
    try {
      JsonNode json = LanceRelation.JSON.readTree(text.substring(mark + MARK.length()));
      String hint = json.hasNonNull("hint") ? "\n      hint: " + json.get("hint").asText() : "";
      return new IllegalStateException(
          json.get("code").asText() + "  " + json.get("message").asText() + hint,
          new RuntimeException(MARK + json));
    } catch (IOException unreadable) {
      return error;
    }
  }
}
