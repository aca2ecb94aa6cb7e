"""The `Duetime` that programs import: functions as jobs, on a server or embedded in the program itself."""
