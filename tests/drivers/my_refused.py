"""What a driver says of a login that comes to nothing: its kind of error, number and text.

SCRIPT pymysql | connector
"""

import sys

import mysql.connector
import pymysql
from my_steps import CA, WHERE

TLS = {"ssl_ca": CA} if CA else {"ssl_disabled": True}
CONNECT = {
    "pymysql": lambda: pymysql.connect(**WHERE, **TLS),
    "connector": lambda: mysql.connector.connect(**WHERE, **TLS, use_pure=True),
}
try:
    CONNECT[sys.argv[1]]()
    print("in")
except (pymysql.err.MySQLError, mysql.connector.Error) as error:
    print(type(error).__name__, *error.args, getattr(error, "sqlstate", None))
