"""The class `Duetime`: functions as jobs, on a server or embedded in the program."""
