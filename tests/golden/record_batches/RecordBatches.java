// Kafka's own record classes, as the origin of the batches beside this file and as a reader of ours:
//
//   java -cp 'kafka-libs/*' RecordBatches.java write FOLDER    writes java-v{magic}-{codec}.batch
//   java -cp 'kafka-libs/*' RecordBatches.java read FILE...    prints each record: offset, timestamp, key,
//                                                             value, then name=value for each header

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.stream.IntStream;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;

public class RecordBatches {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            for (byte magic = 0; magic <= 2; magic++)
                for (CompressionType type : CompressionType.values())
                    if (magic == 2 || type != CompressionType.ZSTD)
                        write(Path.of(arguments[1]), magic, type);
        } else {
            for (int i = 1; i < arguments.length; i++)
                read(Files.readAllBytes(Path.of(arguments[i])));
        }
    }

    private static void write(Path folder, byte magic, CompressionType type) throws Exception {
        SimpleRecord[] records = IntStream.range(0, 12).mapToObj(i -> record(i, magic)).toArray(SimpleRecord[]::new);
        ByteBuffer buffer = MemoryRecords.withRecords(magic, Compression.of(type).build(), records).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(folder.resolve("java-v" + magic + "-" + type.name + ".batch"), bytes);
    }

    private static SimpleRecord record(int i, byte magic) {
        byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
        byte[] value = i % 7 == 0 ? null : ("value-" + i + " ").repeat(8).getBytes(StandardCharsets.UTF_8);
        Header[] headers = magic < 2 || i % 5 != 0
            ? Record.EMPTY_HEADERS
            : new Header[] {new RecordHeader("trace", ("t" + i).getBytes(StandardCharsets.UTF_8)), new RecordHeader("none", null)};
        long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : 1790000000000L + (i * 37) % 100;
        return new SimpleRecord(timestamp, key, value, headers);
    }

    private static void read(byte[] bytes) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder line = new StringBuilder();
                line.append(record.offset()).append(' ').append(record.timestamp());
                line.append(' ').append(text(record.key())).append(' ').append(text(record.value()));
                for (Header header : record.headers())
                    line.append(' ').append(header.key()).append('=')
                        .append(text(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                System.out.println(line);
            }
        }
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null)
            return "null";
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "b64:" + Base64.getEncoder().encodeToString(copy);
    }
}
