"""What happened in a run of ``simulate(..., report=PATH)``, event by event, and the files that show it.

For code of the simulator: ``machine.recorder`` is a ``recorder.Recorder``, or None where nothing is recorded. Whoever adds something that
takes time, waits or sets a word calls it where it is not None. Words that are set need no call: ``memory.writes`` tells of them.

``record`` are the events as files show them; ``files`` chooses the format by the ending of the path: the page (``report_page``),
``trace_json`` or ``trace_proto``.
"""
