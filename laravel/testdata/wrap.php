<?php
// Prints standard input as each serializer and compressor of phpredis changes it:
// their names and the bytes in hexadecimal digits, a line each.
$payload = stream_get_contents(STDIN);
foreach (['none', 'php', 'igbinary', 'json'] as $serializer) {
    foreach (['none', 'lzf', 'zstd', 'lz4'] as $compressor) {
        $by = 'Redis::SERIALIZER_'.strtoupper($serializer);
        $with = 'Redis::COMPRESSION_'.strtoupper($compressor);
        if (!defined($by) || !defined($with)) {
            continue;
        }
        $redis = new Redis;
        $redis->connect('127.0.0.1', (int) $argv[1]);
        $redis->setOption(Redis::OPT_SERIALIZER, constant($by));
        $redis->setOption(Redis::OPT_COMPRESSION, constant($with));
        echo $serializer, '+', $compressor, ' ', bin2hex($redis->_pack($payload)), "\n";
    }
}
