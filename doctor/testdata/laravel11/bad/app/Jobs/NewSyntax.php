<?php

namespace App\Jobs;

class NewSyntax
{
    public string $id { // ZB100
        get => $this->id ?? '';
    }
}
