"""Spares Spark's Python processes what they would do again for every task; called once a task's modules are loaded.

Spark uses a Python process for task after task. Before each of them it has the import system forget what it knows
of folders, and after each it looks for garbage. Spark puts archives of its own first on the path (`pyspark.zip`, even
the jar of its core), and CPython reads the list of an archive's files anew for every folder in it that something was
imported from: 17 times, 0.14 s of processor time for each task. A look for garbage goes through everything that is
loaded, a compiler among it: 0.07 s.
"""

import gc
import os
import re
import sys
import zipimport

# What Spark's PythonUtils.sparkPythonPath lists.
_ARCHIVES = re.compile(r"pyspark\.zip|py4j-[^/]*-src\.zip|spark-core_[^/]*\.jar")
_IS_USED_AGAIN = "SPARK_REUSE_WORKER"
_state = {"is_frozen": False}


def spare_work_between_tasks() -> None:
    """Forget who looks into Spark's archives, and take what is loaded for what stays.

    The next import finds out again who looks into an archive: nothing is imported from elsewhere than before, and the
    archives that a user gives to Spark are looked at as ever. In a process that Spark has not started for task after
    task nothing happens.
    """
    if _IS_USED_AGAIN not in os.environ:
        return
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _ARCHIVES.fullmatch(
            os.path.basename(finder.archive)
        ):
            del sys.path_importer_cache[path]
    if not _state["is_frozen"]:
        # Once: what comes to be in later tasks can become garbage.
        _state["is_frozen"] = True
        gc.freeze()
