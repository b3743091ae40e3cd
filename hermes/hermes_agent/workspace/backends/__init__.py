"""Where commands run: one module for each kind of place, all behind `backend.Backend`."""
