<?php
// charge.php CLIENT ORDER CENTS: one charge by a client library; prints its result
// as JSON, or the class of what it threw and its status. With status 77 a package
// is missing.

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
[, $client, $order, $cents] = $argv;
foreach (['laravel_http' => ['GuzzleHttp/autoload.php', 'Illuminate/Http/autoload.php'], 'guzzle' => ['GuzzleHttp/autoload.php'],
    'symfony' => ['Symfony/Component/HttpClient/autoload.php'], 'curl' => []][$client] as $file) {
    if (!is_file("/usr/share/php/$file")) {
        fwrite(STDERR, "no /usr/share/php/$file\n");
        exit(77);
    }
    require_once "/usr/share/php/$file";
}
if (!extension_loaded('curl')) {
    fwrite(STDERR, "no extension curl\n");
    exit(77);
}
require __DIR__.'/jobs.php';
try {
    echo json_encode(("charge_$client")($order, (int) $cents));
} catch (Throwable $e) {
    $status = $e->getCode() ?: (preg_match('/status (\d+)/', $e->getMessage(), $m) ? (int) $m[1] : 0);
    echo json_encode([get_class($e), $status]);
}
