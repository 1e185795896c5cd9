#!/bin/sh
# Properties files of the known places -> `icebridge run` (or another command) with them.
#   (nothing)                  run with the files found
#   run | serve | ...          a command without files, as run --once: with the files found
#   spark-master, spark-worker MASTER      Spark's standalone cluster, of the same packages as the connectors
#   driver ..., executor ...   what Spark on Kubernetes starts in its pods
#   anything else              `icebridge` with these arguments as they are
set -eu
own=/opt/icebridge/image.properties

# Hadoop wants a name for the user; one that a cluster chose by number (OpenShift, runAsUser) has none.
if ! id -un > /dev/null 2>&1; then
  printf 'icebridge:x:%s:%s::/tmp:/sbin/nologin\n' "$(id -u)" "$(id -g)" > /tmp/passwd
  export LD_PRELOAD=/opt/icebridge/lib/libnss_wrapper.so NSS_WRAPPER_PASSWD=/tmp/passwd NSS_WRAPPER_GROUP=/etc/group
fi

# Spark's own scripts look for Java there.
find_java() {
  JAVA_HOME=$(python -c 'from connector.runtime.jvm.java import find_java_home; print(find_java_home())')
  export JAVA_HOME
}

# Settings of a daemon, in a file: on its command line everybody could read the secret.
write_daemon_settings() {
  defaults=/tmp/spark-daemon.properties
  (umask 077 && : > "$defaults")
  if [ -n "${SPARK_AUTH_SECRET:-}" ]; then
    # In such a file a backslash stands for two, and a value may begin with = or : behind a = alone.
    secret=$(printf '%s' "$SPARK_AUTH_SECRET" | sed 's/\\/\\\\/g')
    printf 'spark.authenticate=true\nspark.network.crypto.enabled=true\nspark.authenticate.secret=%s\n' "$secret" > "$defaults"
  fi
}

case ${1:-run} in
  spark-master)
    find_java
    write_daemon_settings
    exec spark-class org.apache.spark.deploy.master.Master --host "$(hostname)" --port 7077 --webui-port 8080 \
      --properties-file "$defaults"
    ;;
  spark-worker)
    find_java
    write_daemon_settings
    exec spark-class org.apache.spark.deploy.worker.Worker --webui-port 8081 --work-dir /tmp/work \
      --properties-file "$defaults" "$2"
    ;;
  driver)
    shift
    find_java
    exec spark-submit --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:-0.0.0.0}" --deploy-mode client "$@"
    ;;
  executor)
    find_java
    home=$(python -c 'import pyspark; print(pyspark.__path__[0])')
    # Options of the executor's JVM: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ..., one word each.
    set --
    number=0
    while option=$(printenv "SPARK_JAVA_OPT_$number"); do
      set -- "$@" "$option"
      number=$((number + 1))
    done
    exec "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$home/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "${SPARK_EXECUTOR_POD_NAME:-}"
    ;;
esac

# Whether the words behind a command are options alone: then its files are those of the known places.
names_no_file() {
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) return 1 ;;
      -X | --output) [ $# -eq 1 ] || shift ;;
      -*) ;;
      *) return 1 ;;
    esac
    shift
  done
}

[ $# -gt 0 ] || set -- run
case $1 in
  run | serve | validate | status | doctor)
    if names_no_file "$@"; then
      set -- "$@" "$own"
      found=
      # A later file wins. The places of Debezium's operator and of Debezium Server's image come last.
      for file in /config/*.properties /debezium/external/*/*.properties \
        /debezium/external-configuration/*/*.properties /debezium/conf/application.properties /debezium/config/application.properties; do
        if [ -f "$file" ]; then
          set -- "$@" "$file"
          found=yes
        fi
      done
      if [ -z "$found" ]; then
        echo "icebridge: no settings: mount properties files at /config, or application.properties at /debezium/config" >&2
        exit 3
      fi
    fi
    ;;
esac
# exec lets SIGTERM reach the connector.
exec icebridge "$@"
