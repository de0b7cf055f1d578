"""The commands of the command line. They print results and determine exit codes."""
