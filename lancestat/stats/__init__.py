"""What a statistic is: types, kernel, sketch, merge, wire format, guard, publish."""
