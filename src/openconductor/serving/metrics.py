from contextlib import contextmanager


class Metrics:
    def hear(self, event):
        pass

    @contextmanager
    def in_flight(self, api):
        yield

    def ended(self, *a):
        pass

    def first_byte(self, *a):
        pass

    def render(self):
        return b""
