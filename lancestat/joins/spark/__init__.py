"""KNN joins on Spark: sides become Lance datasets, tasks search them and write the result."""
