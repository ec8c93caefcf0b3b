"""What holds for all tests."""

import signal

# Whoever runs the tests may ignore these, as nohup and a shell's `&` do; programs that a test starts would inherit it.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)
