def write_report(found, path):
    pass
