"""Spares Spark's Python processes work that they repeat for every task; called once a task's modules are loaded.

Spark uses a Python process for task after task. Before each of them it invalidates the import system's caches of
folders, and after each it collects garbage. Spark puts archives of its own first on the path (`pyspark.zip`, even the
jar of its core), and CPython reads the list of an archive's files again for every folder in it that a module was
imported from: 17 times, 0.14 s of processor time for each task. A garbage collection visits everything that is
loaded, a compiler among it: 0.07 s.
"""

import gc
import os
import re
import sys
import zipimport

# The archives that Spark's PythonUtils.sparkPythonPath lists.
_ARCHIVES = re.compile(r"pyspark\.zip|py4j-[^/]*-src\.zip|spark-core_[^/]*\.jar")
_IS_USED_AGAIN = "SPARK_REUSE_WORKER"
_state = {"is_frozen": False}


def spare_work_between_tasks() -> None:
    """Drop the importers of Spark's archives, and exempt loaded objects from garbage collection.

    The next import finds the importer of an archive again: no module is imported from elsewhere than before, and
    archives that a user gives to Spark are searched as before. Does nothing in a process that Spark has not started
    for task after task.
    """
    if _IS_USED_AGAIN not in os.environ:
        return
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _ARCHIVES.fullmatch(
            os.path.basename(finder.archive)
        ):
            del sys.path_importer_cache[path]
    if not _state["is_frozen"]:
        # Once: objects of later tasks can become garbage.
        _state["is_frozen"] = True
        gc.freeze()
